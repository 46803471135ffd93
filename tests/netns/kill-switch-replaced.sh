#!/usr/bin/env bash
# timeout: 90
# heavy: a program sends as fast as it can
# While a reload replaces the table of a kill switch, no packet leaves: the kernel deletes the old chain a moment before the
# new chain's policy takes effect.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/neighbour.bash"

cafe
watch_cafe
tunnel_file wg1 0.0.0.0/0,::/0 "#! KillSwitch = true" "#! ExcludedIPs = 198.51.100.0"
good linerate up wg1
forget_seen
neighbour_goes_on h1 e1 h2 e2 flood "${PUBLIC[@]}"
for ((number = 1; number <= 100; number++)); do
  sed -i "s/^#! ExcludedIPs.*/#! ExcludedIPs = 198.51.100.$number/" /etc/wireguard/wg1.conf
  turn linerate reload wg1
  ((STATUS == 0)) || fail "reload $number ended with $STATUS: $(cat "$WORK/said")"
done
expect "packets outside the tunnel during 100 reloads" 0 "$(seen beyond)"
