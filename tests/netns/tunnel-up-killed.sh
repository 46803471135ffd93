#!/usr/bin/env bash
# timeout: 60
# `up` that is killed at any moment leaves what `down` takes back, and a second `up` finds its way after that.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
ip -n h1 route add default via 192.0.2.2
echo "nameserver 192.0.2.54" >"$WORK/etc/resolv.conf"
tunnel_file wg1 0.0.0.0/0,::/0,192.168.77.0/24 "DNS = 192.0.2.53" "#! RouteConflict = replace" "#! KillSwitch = true"
remember
# On this machine, now: from nothing done to all of it.
begun=${EPOCHREALTIME/./}
good linerate up wg1
length=$((${EPOCHREALTIME/./} - begun))
good linerate down wg1
is_gone wg1
for ((part = 0; part <= 24; part++)); do
  STATUS=0
  at h1 timeout -s KILL "$(awk "BEGIN { printf \"%.4f\", $length * ($part + 1) / 20 / 1000000 }")" "$LINERATE" up wg1 >"$WORK/said" 2>&1 || STATUS=$?
  # What is down already cannot be taken down.
  turn linerate down wg1
  ((STATUS == 0)) || said "down after $part parts of 20" "is not a WireGuard interface"
  is_gone wg1
  as_before "killed after $part parts of 20, then down"
done
good linerate up wg1
pings h1 10.9.0.2
good linerate down wg1
is_gone wg1
as_before "down"
