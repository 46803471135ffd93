#!/usr/bin/env bash
# timeout: 120
# A client is added, disabled and removed while the server's tunnel is renamed, moved or of another network namespace, or another daemon has its name: the edit reaches that tunnel and no other one, or says that it did not.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need wireguard-go jq

hosts_with_files
host b
server=/etc/wireguard/wg1.conf
server_file() { # [LINE...] : for [Interface]
  (umask 077 && cat >$server) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.9.0.1/24
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
$(printf '%s\n' "$@")

[Peer]
# Name = branch
PublicKey = $(public h2)
AllowedIPs = 10.9.0.2/32
CONF
}
client() { # HOST VERB [WORD...] : its output is in $WORK/out and $WORK/said, its status in $STATUS
  local status=0
  at "$1" timeout 60 "$LINERATE" client "$2" --server wg1 "${@:3}" >"$WORK/out" 2>"$WORK/said" || status=$?
  { echo "--- in $1, client ${*:2}: $status" && cat "$WORK/said"; } >>"$SCENARIO_LOGS/said.log"
  STATUS=$status
}
# What the daemon with the socket of wg1 has, wherever its interface is.
count() { printf 'get=1\n\n' | uapi wg1 | grep -c ^public_key= || true; }
follows() { # WHERE : each edit does
  client h1 add phone
  expect "$1, client add" 0 "$STATUS"
  expect "$1, peers" 2 "$(count)"
  client h1 disable phone
  expect "$1, client disable" "0 1" "$STATUS $(count)"
  client h1 disable phone
  expect "$1, client disable once more" "0 1" "$STATUS $(count)"
  client h1 enable phone
  expect "$1, client enable" "0 2" "$STATUS $(count)"
  client h1 remove phone
  expect "$1, client remove" "0 1" "$STATUS $(count)"
}
untold() { # WHERE WORDS : the file has the edit, the tunnel that runs has not, and that is said
  count >"$WORK/count"
  for verb in add disable disable enable remove; do
    client h1 $verb phone
    expect "$1, client $verb" 1 "$STATUS"
    said "$1, client $verb" "$2"
    expect "$1, client $verb: peers of the other one" "$(cat "$WORK/count")" "$(count)"
  done
}

say "renamed"
server_file
good linerate up wg1
follows "under its name"
ip -n h1 link set wg1 down
ip -n h1 link set wg1 name wg9
follows "renamed"
ip -n h1 link set wg9 name wg1
good linerate reload wg1
ip -n h1 link set wg1 up

say "moved"
ip -n h1 link set wg1 netns b
follows "moved"
client b add phone
expect "in b, client add" 1 "$STATUS"
said "in b, client add" "wg1 belongs to another network namespace \(h1\); nothing was changed"
good linerate down wg1
is_gone wg1

say "of another network namespace"
good linerate up wg1
cp $server "$WORK/before"
for verb in add disable enable remove; do
  client b $verb branch
  expect "in b, client $verb" 1 "$STATUS"
  said "in b, client $verb" "another network namespace \(h1\)"
  cmp $server "$WORK/before" || fail "in b, client $verb has changed the file"
done

for program in "$TUNNEL_DAEMON" wireguard-go; do
  say "its daemon has died, and ${program##*/} has its name"
  kill_daemon
  at h1 "$program" wg1 >/dev/null 2>&1
  wait_for 5 "$program to answer" answers h1 wg1
  untold "another daemon" "the tunnel wg1 that runs has another private key .*, and is as it was"
  at h1 wg set wg1 private-key "$WORK/h2.key" peer "$(public h1)"
  untold "another key" "the tunnel wg1 that runs has another private key .*, and is as it was"
  say "with the key of the file: it is the server again, whoever brought it up"
  at h1 wg set wg1 private-key "$WORK/h1.key" peer "$(public h1)" remove peer "$(public h2)" allowed-ips 10.9.0.2/32
  client h1 add phone
  expect "peers" 2 "$(count)"
  client h1 remove phone
  expect "peers" 1 "$(count)"
  ip -n h1 link delete wg1
  is_gone wg1
  good linerate up wg1
done
good linerate down wg1
is_gone wg1
