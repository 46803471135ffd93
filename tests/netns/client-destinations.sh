#!/usr/bin/env bash
# timeout: 300
# Destinations of clients are those of a new `up` after each edit: answered, killed, or with a daemon silent or dead.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need nft jq

two_hosts
server=/etc/wireguard/wg1.conf
key h1 ann bob carol dave
client() { # WORD...
  at h1 timeout 60 "$LINERATE" client "$@" >"$WORK/out" 2>"$WORK/said" || fail "client $*: $(cat "$WORK/said")"
  say "client $*: ok"
}
add() { # NAME DESTINATION
  client add "$1" --pubkey "$(public "$1")" --dest "$2"
}
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
  add dave 10.4.0.0/16
  said "a warning" "does not respond.*linerate reload wg1"
  [[ $(table) == *10.4.0.0/16* ]] || fail "no answer: the table is $(table)"
  [[ -e /run/linerate/wg1.next ]] || fail "the edit counts as applied"
  kill -CONT "$daemon"
  good linerate reload wg1
  as_by_up "no answer"

  say "a client that goes is restricted for as long as the daemon knows it"
  before=$(table)
  sum=$(sha256sum <$server)
  daemon=$(daemon_of wg1)
  kill -STOP "$daemon"
  if at h1 timeout 60 "$LINERATE" client remove dave >"$WORK/out" 2>&1; then fail "remove: no failure"; fi
  expect "the table" "$before" "$(table)"
  expect "the file" "$sum" "$(sha256sum <$server)"
  kill -CONT "$daemon"
  client remove dave

  say "a daemon that dies while it is asked"
  daemon=$(daemon_of wg1)
  kill -STOP "$daemon"
  at h1 timeout 60 "$LINERATE" client add dave --pubkey "$(public dave)" --dest 10.5.0.0/16 >"$WORK/out" 2>"$WORK/said" &
  pid=$!
  wait_for 10 "the new table" eval '[[ $(table) == *10.5.0.0/16* ]]'
  kill -KILL "$daemon"
  wait $pid || fail "a daemon that dies: $(cat "$WORK/said")"
  said "a warning" "does not respond"
  [[ $(table) == *10.5.0.0/16* ]] || fail "the daemon died: the table is $(table)"
  good linerate down wg1
  good linerate up wg1
  [[ $(table) == *10.5.0.0/16* ]] || fail "the daemon died: the table is $(table)"
  client remove dave

  say "killed between the table and the peer"
  daemon=$(daemon_of wg1)
  kill -STOP "$daemon"
  nsenter --net=/run/netns/h1 "$LINERATE" client add dave --pubkey "$(public dave)" --dest 10.5.0.0/16 >"$WORK/out" 2>&1 &
  pid=$!
  wait_for 10 "the new table" eval '[[ $(table) == *10.5.0.0/16* ]]'
  kill -KILL $pid
  wait $pid 2>/dev/null || true
  kill -CONT "$daemon"
  if ledger_complete wg1; then fail "the kill came too late"; fi
  client set carol --dest 10.6.0.0/16
  as_by_up "killed"
  client remove bob carol dave
  [[ -n $gateway ]] || expect "the table without destinations" none "$(table)"
  good linerate down wg1
done
