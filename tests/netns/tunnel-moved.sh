#!/usr/bin/env bash
# timeout: 120
# A tunnel whose interface is renamed or moved to another network namespace, by a hook or later: each command names the place, `down` takes the tunnel down, and `up` refuses to start a second one.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
host b
need jq
ip -n lan link add wg1 type veth peer name other # no tunnel
# An interface that is moved to b gets another index there.
for n in {1..20}; do ip -n b link add "taken$n" type veth peer name "also-taken$n"; done
key other
# The kernel adds a link's link-local address at any time.
settled() { state | sed -e 's| fe80::[^ ]*||' -e 's| *$||' -e '/^\(local \|multicast \|anycast \)\?\(fe80\|ff00\):/d'; }
stays() { # WHO VERB NAME WORDS : refused, and nothing has changed
  local before daemon
  before=$(md5sum /run/linerate/wg1.{json,conf} /etc/wireguard/*) daemon=$(daemon_of wg1)
  settled >"$WORK/state"
  bad "$1" "$2" "$3"
  said "$2 $3" "$4"
  expect "$2 $3: ledger and files" "$before" "$(md5sum /run/linerate/wg1.{json,conf} /etc/wireguard/*)"
  expect "$2 $3: the daemon" "$daemon" "$(daemon_of wg1)"
  diff "$WORK/state" <(settled) || fail "$2 $3: the host has changed"
}
ended() {
  wait_for 5 "the daemon to end" no_daemon wg1
  wait_for 5 "the interface in b to go" no_link_in_b
  wait_for 5 "wg9 to go" no_link wg9
  is_gone wg1
}
no_link_in_b() { ! ip -n b link show wg1; }
down() { # WHO
  good "$1" down wg1
  ended
  as_before "$1 down"
}

for who in linerate wg-quick; do
  tunnel_file wg1 0.0.0.0/0,::/0 "ListenPort = 50001"
  remember

  say "$who: renamed"
  good $who up wg1
  pings h1 10.9.0.2
  ip -n h1 link set wg1 down
  ip -n h1 link set wg1 name wg9
  for verb in up plan reload save; do
    stays linerate $verb wg1 "its interface is called wg9; \`ip link set dev wg9 name wg1\` gives the name back"
  done
  for verb in up down reload save; do stays linerate $verb wg9 "wg9 is the interface of the tunnel wg1"; done
  bad linerate status wg9
  said "status wg9" "wg9 is the interface of the tunnel wg1"
  bad linerate status wg1 --check
  said "status wg1" "its interface is called wg9"
  say "$who: the command in the message works"
  ip -n h1 link set dev wg9 name wg1
  good linerate reload wg1
  pings h1 10.9.0.2
  ip -n h1 link set wg1 down
  ip -n h1 link set wg1 name wg9
  down $who

  say "$who: moved"
  good $who up wg1
  ip -n h1 link set wg1 netns b
  for verb in up plan reload save; do
    stays linerate $verb wg1 "its interface was moved to another network namespace \(b\)"
  done
  bad linerate status wg1 --check
  said "status" "its interface was moved to another network namespace \(b\)"
  at b "$LINERATE" status wg1 >"$WORK/said"
  said "status in b" "it belongs to another network namespace \(h1\)"
  ! at b "$LINERATE" down wg1 >"$WORK/said" 2>&1 || fail "down in b succeeded: $(cat "$WORK/said")"
  said "down in b" "\`ip netns exec h1 linerate down wg1\`"
  say "$who: and another interface has the name"
  ip -n h1 link add wg1 type veth peer name other
  stays linerate up wg1 "its interface was moved to another network namespace \(b\)"
  good $who down wg1
  ip -n h1 link show wg1 >/dev/null || fail "down has deleted an interface that does not belong to the tunnel"
  ip -n h1 link delete wg1
  ended
  as_before "$who down"

  say "$who: moved there and back, with another index"
  good $who up wg1
  index=$(ip -n h1 -o link show wg1 | cut -d: -f1)
  ip -n h1 link set wg1 netns b
  ip -n b link set wg1 netns h1
  [[ $(ip -n h1 -o link show wg1) != "$index":* ]] || fail "the index is the same"
  good linerate status wg1
  ! grep -q "was moved" "$WORK/said" || fail "status: $(cat "$WORK/said")"
  ip -n h1 link set wg1 up
  good linerate reload wg1
  pings h1 10.9.0.2
  expect "the ledger's index" "$(jq .index /run/linerate/wg1.json)" "$(ip -n h1 -o link show wg1 | cut -d: -f1)"
  down $who

  say "$who: moved by PostUp, as into a container"
  tunnel_file wg1 10.9.0.0/24,fd09::/64 \
    "PostUp = ip link set %i netns b; ip -n b address add 10.9.0.1/24 dev %i; ip -n b link set %i up"
  good $who up wg1
  pings b 10.9.0.2
  good linerate status wg1 --check
  said "status" "its interface was moved to another network namespace \(b\)"
  stays $who up wg1 "was moved"
  say "$who: a reload reaches its daemon, and does not touch what the hook has set up"
  cp /etc/wireguard/wg1.conf "$WORK/wg1.conf"
  good linerate reload wg1
  printf '%s\n' "PersistentKeepalive = 25" "[Peer]" "PublicKey = $(public other)" "AllowedIPs = 10.9.0.7/32" >>/etc/wireguard/wg1.conf
  good linerate reload wg1
  expect "peers" 2 "$(on b wg show wg1 peers | wc -l)"
  expect "keepalive" 25 "$(of_peer b wg1 persistent-keepalive h2 2)"
  pings b 10.9.0.2
  say "$who: what asks more of the host is not done by half"
  sed 's|10.9.0.7/32|10.20.0.0/24|' -i /etc/wireguard/wg1.conf
  stays linerate reload wg1 "was moved to another network namespace \(b\); \`linerate down wg1\` takes it down, and \`linerate up wg1\`"
  expect "peers" 10.9.0.7/32 "$(of_peer b wg1 allowed-ips other 2)"
  good linerate down wg1
  ended
  good $who up wg1
  expect "peers" 10.20.0.0/24 "$(of_peer b wg1 allowed-ips other 2)"
  # The move ends the session of the first keepalive. h2 drops an initiation within 20 ms of the last; the next comes after 5 s.
  wait_for 15 "an answer from h2" on b ping -n -q -c 1 -W 1 10.9.0.2
  cp "$WORK/wg1.conf" /etc/wireguard/wg1.conf
  down $who

  say "$who: moved or renamed by PreUp: up fails and leaves nothing behind"
  for hook in "ip link set %i netns b" "ip link set %i name wg9"; do
    tunnel_file wg1 10.9.0.0/24,fd09::/64 "PreUp = $hook"
    bad $who up wg1
    said "up" "wg1 went away before it was set up.*PostUp"
    ended
    as_before "$who up"
  done
done
