#!/usr/bin/env bash
# `up` after a tunnel that ended badly, its daemon killed or its interface deleted: nothing of the old one is left behind.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
ip -n h1 route add default via 192.0.2.2
echo "nameserver 192.0.2.54" >"$WORK/etc/resolv.conf"
for who in wg-quick linerate; do
  for end in kill_daemon "ip -n h1 link delete wg1" "kill_up $who"; do
    # The LAN is replaced, so that the old tunnel's undoing has something to put back.
    tunnel_file wg1 0.0.0.0/0,::/0,192.168.77.0/24 "DNS = 192.0.2.53" "#! KillSwitch = true" "#! RouteConflict = replace" "PostDown = touch $WORK/down"
    remember
    if [[ $end != kill_up* ]]; then good $who up wg1; fi
    $end
    good $who up wg1
    pings h1 10.9.0.2
    good $who down wg1
    is_gone wg1
    as_before "$who after: $end, up, down"
  done
done
