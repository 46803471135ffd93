#!/usr/bin/env bash
# No room on a disk: `up` says so and leaves nothing behind, `save` keeps the old file and says so.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
tunnel_file wg1 10.9.0.2/32,fd09::2/128 "ListenPort = 50001" "PostUp = echo up >>$WORK/runs" "PostDown = echo down >>$WORK/runs"
remember
no_room() { # WHAT FILE
  said "$1" "$2: No space left on device"
}

mkdir -p /run/linerate
for room in "8k wg1.conf" "12k wg1.json"; do # a page for each file: the lock, the ledger, the copy of the tunnel's file
  say "/run/linerate has room for ${room% *}"
  mount -t tmpfs -o size="${room% *}" tmpfs /run/linerate
  bad linerate up wg1
  no_room "up" "/run/linerate/${room#* }"
  is_gone wg1
  as_before "up without room"
  umount /run/linerate
done
expect "commands that were run" "up down" "$(xargs <"$WORK/runs")" # by the second, which found no room at its end

say "no room for the socket"
mount -t tmpfs -o nr_inodes=1 tmpfs /run/wireguard
bad linerate up wg1
no_room "up" "/wireguard/wg1.sock"
umount /run/wireguard
wait_for 5 "the interface to go" no_link wg1
as_before "up without a socket"

say "the daemon of a service dies when there is no room for its new ledger: it is started again all the same"
mount -t tmpfs -o size=16k tmpfs /run/linerate
nsenter --net=/run/netns/h1 "$LINERATE" up --supervise wg1 >>"$SCENARIO_LOGS/supervise.log" 2>&1 &
supervisor=$!
wait_for 10 "wg1 to answer" answers h1 wg1
wait_for 5 "traffic" on h1 ping -n -q -c 1 -W 1 10.9.0.2
wait_for 5 "up to be done" ledger_complete wg1
head -c 4096 /dev/zero >/run/linerate/other
pkill -KILL -f "linerated wg1\$"
warned() { grep -q "wg1.json: No space left on device" "$SCENARIO_LOGS/supervise.log"; }
wait_for 10 "a word of the supervisor" warned
wait_for 5 "traffic again" on h1 ping -n -q -c 1 -W 1 10.9.0.2
pings h2 10.9.0.1
kill -TERM $supervisor
wait $supervisor || fail "the service ended with $?"
is_gone wg1
umount /run/linerate
as_before "a service that found no room"

say "no room where the tunnel's file is"
mkdir "$WORK/full"
mount -t tmpfs -o size=8k,mode=0700 tmpfs "$WORK/full"
cp -p /etc/wireguard/wg1.conf "$WORK/full"
head -c 4096 /dev/zero >"$WORK/full/other"
good linerate up "$WORK/full/wg1.conf"
on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 25
for who in wg-quick linerate; do
  bad $who save "$WORK/full/wg1.conf"
  no_room "$who save" "Could not write configuration file"
  cmp "$WORK/full/wg1.conf" /etc/wireguard/wg1.conf || fail "$who save has changed the file"
  expect "files beside it" "other wg1.conf" "$(find "$WORK/full" -type f -printf '%f\n' | sort | xargs)"
done
rm "$WORK/full/other"
good linerate save "$WORK/full/wg1.conf"
grep -q "^PersistentKeepalive = 25$" "$WORK/full/wg1.conf" || fail "save, with room again, has not saved"
pings h1 10.9.0.2
good linerate down "$WORK/full/wg1.conf"
is_gone wg1
as_before "down"
