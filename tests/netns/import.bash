# Words for scenarios about `linerate server import`, sourced after tunnel-files.bash. The samples of
# crates/server/tests/data/import are the old tool's files:
#
#   h1 eth0 --- r --- net      h1 is the server (198.51.100.7, vpn.example.com), net a host of the internet
#               |              (203.0.113.9, 2001:db8:9::9), which has no route to the tunnel's networks
#               h2             h2 is where the clients' old files are brought up

SAMPLES=$REPO/crates/server/tests/data/import
mount -t tmpfs -o mode=0755 tmpfs /var/lib
echo "198.51.100.7 vpn.example.com office.example.com" >>/etc/hosts

import_hosts() {
  host h1 h2 r net
  cable h1 eth0 r r1
  cable h2 e2 r r2
  cable net n1 r r3
  forwarding r
  address h1 eth0 198.51.100.7/24 2001:db8:5::7/64
  address r r1 198.51.100.1/24 2001:db8:5::1/64
  address h2 e2 192.0.2.2/24 2001:db8::2/64
  address r r2 192.0.2.1/24 2001:db8::1/64
  address net n1 203.0.113.9/24 2001:db8:9::9/64
  address r r3 203.0.113.1/24 2001:db8:9::1/64
  local at
  for at in h1/198.51.100.1/2001:db8:5::1 h2/192.0.2.1/2001:db8::1 net/203.0.113.1/2001:db8:9::1; do
    IFS=/ read -r at v4 v6 <<<"$at"
    ip -n "$at" route add default via "$v4"
    ip -n "$at" -6 route add default via "$v6"
  done
  # What comes out of the server in its own name.
  count net in masqueraded iifname n1 ip saddr 198.51.100.7 ip daddr 203.0.113.9 icmp type echo-request
  count net in masqueraded6 iifname n1 ip6 saddr 2001:db8:5::7 ip6 daddr 2001:db8:9::9 icmpv6 type echo-request
}

sample() { # KIND : the sample's files, without what is only for tests, in $WORK/KIND
  cp -a "$SAMPLES/$1" "$WORK/$1"
  rm -rf "$WORK/$1"/{expected.*,host,tables}
}

# All files that an import may touch.
old_files() { find /etc/wireguard /var/lib "$SAMPLES" -type f -exec md5sum {} + -o -printf '%p %m %y\n' | sort; }

import() { # ARGUMENT... : its words are in $WORK/said
  [[ -e $WORK/old-files ]] || old_files >"$WORK/old-files"
  at h1 "$LINERATE" server import "$@" >"$WORK/said" 2>&1 ||
    fail "import $*: $(tail -n 5 "$WORK/said" | tr '\n' ' ')"
  cat "$WORK/said" >>"$SCENARIO_LOGS/said.log"
  say "import $*: ok"
}

refused_import() { # PATTERN ARGUMENT...
  if at h1 "$LINERATE" server import "${@:2}" >"$WORK/said" 2>&1; then fail "import ${*:2}: expected a refusal"; fi
  said "import ${*:2}" "$1"
}

client_up() { # FILE : the old file of a client, on h2
  install -m 600 "$1" /etc/wireguard/old.conf
  at h2 timeout 60 "$LINERATE" wg-quick up old >"$WORK/said" 2>&1 || fail "the client's file: $(tail -n 3 "$WORK/said")"
}
client_down() { at h2 timeout 60 "$LINERATE" wg-quick down old >"$WORK/said" 2>&1 || fail "client: $(cat "$WORK/said")"; }

# Brings the server up and every client that the old tool had let in: it reaches the server's own address and, through
# its address translation, the internet.
clients_work() { # SERVER-ADDRESS INTERNET-ADDRESSES FILE...
  local server=$1 internet=$2 file to before
  good linerate up wg0
  for file in "${@:3}"; do
    say "the client's file $file"
    client_up "$file"
    pings h2 "$server"
    for to in $internet; do
      before=$(figures)
      pings h2 "$to"
      [[ $(figures) != "$before" ]] || fail "the ping to $to did not come from the server's own address"
    done
    client_down
  done
}
figures() { echo "$(counted net masqueraded) $(counted net masqueraded6)"; }

client_is_refused() { # SERVER-ADDRESS FILE : of one that was disabled
  client_up "$2"
  no_ping h2 "$1"
  client_down
}

# Every command works on an imported server as on any other.
commands_work() {
  local one word
  local file=/etc/wireguard/wg0.conf
  good linerate server show wg0
  good linerate client list
  one=$(at h1 "$LINERATE" client list --json | jq -r '[.[] | select(.state == "enabled")][0].name')
  [[ -n $one && $one != null ]] || fail "no client is there: $(at h1 "$LINERATE" client list)"
  good linerate client show "$one"
  good linerate client disable "$one"
  good linerate client enable "$one"
  good linerate client set "$one" --quota 50G --note "a note"
  good linerate client renew "$one" --expires 30d
  good linerate client export "$one"
  good linerate client rename "$one" other-name
  good linerate client rekey other-name --keep-key
  good linerate client qr other-name
  good linerate client rename other-name "$one"
  good linerate client add new-one --keep-key
  for word in "$(sed -n 's/^#! PublicEndpoint = //p' $file)" $'\nAddress = '; do
    [[ $(at h1 "$LINERATE" client export new-one) == *"$word"* ]] || fail "the new client's file has no $word"
  done
  good linerate client remove new-one
  good linerate server set --dns 9.9.9.9
  good linerate server set --endpoint home.example.com:4444
  grep -q '^#! PublicEndpoint = home.example.com:4444$' $file || fail "server set --endpoint has changed nothing"
  expect "what wg-quick makes of it" 0 "$(wg-quick strip wg0 >/dev/null 2>"$WORK/strip" && echo 0 || cat "$WORK/strip")"
}

server_goes() { # the tunnel leaves nothing behind, and its removal every file as the old tool had it
  need jq
  commands_work
  good linerate down wg0
  is_gone wg0
  expect "tables of the server" "" "$(at h1 nft list tables)"
  good linerate up wg0
  good linerate server remove wg0 --yes
  is_gone wg0
  expect "tables of the server" "" "$(at h1 nft list tables)"
  rm -f /etc/wireguard/old.conf # of h2
  diff "$WORK/old-files" <(old_files) >"$WORK/diff" || fail "server remove: $(tr '\n' ' ' <"$WORK/diff")"
  say "server remove: every file is as the old tool had it"
}
