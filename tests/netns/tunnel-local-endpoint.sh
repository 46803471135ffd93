#!/usr/bin/env bash
# An endpoint on this host, as with udp2raw or wstunnel in front: the MTU is that of the default route, and `plan' says why.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
ip -n h1 route add default via 192.0.2.2
mtu() { ip -n h1 -o link show "$1" | sed "s/.* mtu \([0-9]*\) .*/\1/"; }
for endpoint in 127.0.0.1 127.1.2.3 "[::1]" 192.0.2.1 "[2001:db8::1]" 192.168.77.1 "[::ffff:127.0.0.1]" 0.0.0.0; do
  ENDPOINT=$endpoint:50002 tunnel_file wg1 10.9.0.2/32
  good linerate plan wg1
  said "plan for $endpoint" "the endpoint .* is on this host, so the path behind it is not known: the MTU 1420"
  for who in linerate wg-quick; do
    good $who up wg1
    expect "$who: MTU for $endpoint" 1420 "$(mtu wg1)"
    good $who down wg1
  done
done

say "the default route's own MTU counts, and that of a path to another endpoint"
ip -n h1 route change default via 192.0.2.2 mtu 1400
ENDPOINT=127.0.0.1:50002 tunnel_file wg1 10.9.0.2/32
good linerate up wg1
expect "MTU" 1320 "$(mtu wg1)"
good linerate down wg1
ip -n h1 link set lan1 mtu 1300
key h3
printf '[Peer]\nPublicKey = %s\nEndpoint = 192.168.77.2:50003\nAllowedIPs = 10.9.0.3/32\n' "$(public h3)" >>/etc/wireguard/wg1.conf
good linerate up wg1
expect "MTU" 1220 "$(mtu wg1)"
good linerate down wg1

say "with an MTU in the file nothing is said"
ENDPOINT=127.0.0.1:50002 tunnel_file wg1 10.9.0.2/32 "MTU = 1380"
good linerate up wg1
expect "MTU" 1380 "$(mtu wg1)"
! grep -q "on this host" "$WORK/said" || fail "a warning: $(cat "$WORK/said")"
good linerate down wg1
