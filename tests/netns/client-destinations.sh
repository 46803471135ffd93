#!/usr/bin/env bash
# timeout: 400
# Destinations of clients are those of a new `up` after each edit: answered, killed, or with a daemon silent or dead.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need nft jq perl

two_hosts
server=/etc/wireguard/wg1.conf
mkdir -p /run/wireguard "$WORK/uapi"
mount --bind /run/wireguard "$WORK/uapi"
key h1 ann bob carol dave
client() { # WORD...
  at h1 timeout 60 "$LINERATE" client "$@" >"$WORK/out" 2>"$WORK/said" || fail "client $*: $(cat "$WORK/said")"
  say "client $*: ok"
}
unanswered() { # WORD... : the change is in the file, and that the tunnel did not answer is a failure
  if at h1 timeout 60 "$LINERATE" client "$@" >"$WORK/out" 2>"$WORK/said"; then fail "client $*: success, without an answer"; fi
  say "client $*: no answer"
}
add() { # NAME DESTINATION
  client add "$1" --pubkey "$(public "$1")" --dest "$2"
}
# A command, with something between it and the daemon (uapi-proxy.pl): in the background, as $pid.
through() { # HOW WORD...
  local how=$1
  shift
  rm -rf "$WORK/between" && mkdir "$WORK/between"
  "$REPO/tests/netns/uapi-proxy.pl" "$WORK/between/wg1.sock" "$WORK/uapi/wg1.sock" "$how" "$WORK/between" &
  proxy=$!
  wait_for 10 "the proxy" test -S "$WORK/between/wg1.sock"
  # The proxy's socket differs from the one in the ledger; a ledger of an earlier version has none.
  jq -c 'del(.identity.socket)' /run/linerate/wg1.json >"$WORK/ledger"
  cat "$WORK/ledger" >/run/linerate/wg1.json
  nsenter --net=/run/netns/h1 unshare --mount bash -c 'mount --bind "$1" /run/wireguard && shift && exec "$@"' - \
    "$WORK/between" "$LINERATE" "$@" >"$WORK/out" 2>"$WORK/said" &
  pid=$!
}
asked() { test -e "$WORK/between/asked"; }
killed() { # HOW WORD...
  through "$@"
  local status=0
  wait $pid 2>/dev/null || status=$?
  ((status == 137)) || fail "a command that is to be killed ended with $status: $(cat "$WORK/said")"
  kill $proxy
}
knows() { [[ $(on h1 wg show wg1 peers) == *"$(public "$1")"* ]]; } # CLIENT : whether the daemon does
table() { at h1 nft -s list table inet linerate_gateway-wg1 2>/dev/null || echo none; }
as_by_up() { # WHEN : the table and what the ledger says of it are as after a new `up`
  local table restrictions
  ledger_complete wg1 || fail "$1: the ledger is not complete"
  [[ ! -e /run/linerate/wg1.next ]] || fail "$1: the edit does not count as applied"
  table=$(table) restrictions=$(jq -c .spec.forwarding.restrictions /run/linerate/wg1.json)
  good linerate reload wg1
  said "reload" "nothing has changed"
  good linerate down wg1
  expect "$1: the table after down" none "$(table)"
  good linerate up wg1
  expect "$1: the table" "$(table)" "$table"
  expect "$1: the ledger" "$(jq -c .spec.forwarding.restrictions /run/linerate/wg1.json)" "$restrictions"
}

for gateway in "" "#! Gateway = e1"; do
  say "with: ${gateway:-no gateway}"
  (umask 077 && cat >$server) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.71.8.1/24, fd71::1/64
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
$gateway
CONF
  good linerate up wg1
  add ann 10.1.0.0/16
  add bob 10.2.0.0/16,fd02::/32
  client add carol --pubkey "$(public carol)"
  as_by_up "added"
  client set bob --dest 10.3.0.0/16
  as_by_up "changed"
  client remove ann
  [[ $(table) == *10.3.0.0/16* && $(table) != *10.1.0.0/16* ]] || fail "ann is removed, and the table is $(table)"
  as_by_up "one removed"

  say "no answer: the table is there before the peer"
  daemon=$(daemon_of wg1)
  kill -STOP "$daemon"
  unanswered add dave --pubkey "$(public dave)" --dest 10.4.0.0/16
  said "a warning" "does not respond.*linerate reload wg1"
  [[ $(table) == *10.4.0.0/16* ]] || fail "no answer: the table is $(table)"
  [[ -e /run/linerate/wg1.next ]] || fail "the edit counts as applied"
  kill -CONT "$daemon"
  good linerate reload wg1
  as_by_up "no answer"

  say "a client that goes is restricted for as long as the daemon may know it"
  before=$(table)
  daemon=$(daemon_of wg1)
  kill -STOP "$daemon"
  unanswered remove dave
  said "a warning" "does not respond.*linerate reload wg1"
  expect "the table" "$before" "$(table)"
  kill -CONT "$daemon"
  good linerate reload wg1
  [[ $(table) != *10.4.0.0/16* ]] || fail "dave is removed, and the table is $(table)"
  as_by_up "removed without an answer"

  say "a whole reload: until the daemon has answered, only what passes before and after it passes"
  add dave 10.4.0.0/16
  echo "# by hand" >>$server
  through hold client set dave --dest 10.4.0.0/17,10.5.0.0/16
  wait_for 10 "the daemon to be asked" asked
  [[ $(table) == *10.4.0.0/17* && $(table) != *10.4.0.0/16* && $(table) != *10.5.0.0/16* ]] ||
    fail "asked: the table is $(table)"
  touch "$WORK/between/go"
  wait $pid || fail "$(cat "$WORK/said")"
  kill $proxy
  [[ $(table) == *10.5.0.0/16* ]] || fail "answered: the table is $(table)"
  as_by_up "by a reload"
  echo "# again by hand" >>$server
  through hold client remove dave
  wait_for 10 "the daemon to be asked" asked
  [[ $(table) == *10.5.0.0/16* ]] || fail "asked: the table is $(table)"
  touch "$WORK/between/go"
  wait $pid || fail "$(cat "$WORK/said")"
  kill $proxy
  [[ $(table) != *10.5.0.0/16* ]] || fail "answered: the table is $(table)"
  as_by_up "removed by a reload"

  say "a whole reload that the daemon takes later"
  echo "# once more by hand" >>$server
  sum=$(sha256sum <$server)
  through hold client add dave --pubkey "$(public dave)" --dest 10.5.0.0/16
  if wait $pid; then fail "a reload without an answer: no failure"; fi
  said "a reload without an answer" "; the tunnel may have the change"
  expect "the file" "$sum" "$(sha256sum <$server)"
  ledger_complete wg1 || fail "the ledger is not complete"
  touch "$WORK/between/go"
  wait_for 10 "the daemon to have the client" knows dave
  kill $proxy
  [[ $(table) == *10.5.0.0/16* ]] || fail "the daemon has it: the table is $(table)"
  good linerate reload wg1
  if knows dave; then fail "it is not in the file, and the daemon has it"; fi
  [[ $(table) != *10.5.0.0/16* ]] || fail "the daemon does not have it: the table is $(table)"
  as_by_up "taken later"

  say "a client that goes while the daemon is dead"
  add dave 10.5.0.0/16
  kill -KILL "$(daemon_of wg1)"
  wait_for 10 "the daemon's end" no_link wg1
  client remove dave
  said "a warning" "does not respond"
  [[ $(table) != *10.5.0.0/16* ]] || fail "the daemon is dead: the table is $(table)"
  good linerate down wg1
  good linerate up wg1

  say "a daemon that dies while it is asked"
  daemon=$(daemon_of wg1)
  kill -STOP "$daemon"
  at h1 timeout 60 "$LINERATE" client add dave --pubkey "$(public dave)" --dest 10.5.0.0/16 >"$WORK/out" 2>"$WORK/said" &
  pid=$!
  wait_for 10 "the new table" eval '[[ $(table) == *10.5.0.0/16* ]]'
  kill -KILL "$daemon"
  wait $pid || true # it had been asked, or not yet
  said "a warning" "does not respond"
  [[ $(table) == *10.5.0.0/16* ]] || fail "the daemon died: the table is $(table)"
  good linerate down wg1
  good linerate up wg1
  [[ $(table) == *10.5.0.0/16* ]] || fail "the daemon died: the table is $(table)"
  client remove dave

  for how in kill-before kill-after; do
    say "killed when the table has it: $how the peer"
    killed $how client add dave --pubkey "$(public dave)" --dest 10.5.0.0/16
    [[ $(table) == *10.5.0.0/16* ]] || fail "killed: the table is $(table)"
    if ledger_complete wg1; then fail "killed: the ledger is complete"; fi
    client set carol --dest 10.6.0.0/16
    as_by_up "killed"

    say "killed when a whole reload takes a client away: $how"
    echo "# by hand, $how" >>$server
    killed $how client remove dave
    [[ $(table) == *10.5.0.0/16* ]] || fail "killed: the table is $(table)"
    good linerate reload wg1
    [[ $(table) != *10.5.0.0/16* ]] || fail "dave is removed, and the table is $(table)"
    as_by_up "killed in a reload"
  done
  client remove bob carol
  [[ -n $gateway ]] || expect "the table without destinations" none "$(table)"
  good linerate down wg1
done
