#!/usr/bin/env bash
# Everything through the tunnel, its own datagrams excepted by their mark: the rules that wg-quick makes.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
on h1 wg set wg1 fwmark 51820 peer "$(public h2)" allowed-ips 0.0.0.0/0,::/0
expect "fwmark" 0xca6c "$(on h1 wg show wg1 fwmark)"
for family in -4 -6; do
  ip -n h1 $family route add default dev wg1 table 51820
  ip -n h1 $family rule add not fwmark 51820 table 51820
  ip -n h1 $family rule add table main suppress_prefixlength 0
done
# Something behind h2 that h1 can reach only through the tunnel. By the main table, the endpoint itself
# would be on the cable; without it, the mark alone keeps the tunnel's datagrams out of the tunnel.
address h2 lo 203.0.113.7/32 2001:db8:7::7/128
ip -n h1 route add default via 192.0.2.2
count h2 in inside iifname wg2 ip daddr 203.0.113.7
pings h1 203.0.113.7 -I 10.9.0.1
pings h1 2001:db8:7::7 -I fd09::1
expect "pings that came through the tunnel" 3 "$(counted h2 inside)"

# The mark is really on the datagrams, and a change of it takes effect at once.
count h1 out marked meta mark 51820 udp dport 50002
count h1 out remarked meta mark 0x2a udp dport 50002
pings h1 10.9.0.2
expect "datagrams with the first mark" 3 "$(counted h1 marked)"
for family in -4 -6; do ip -n h1 $family rule add fwmark 0x2a table main priority 10; done
on h1 wg set wg1 fwmark 0x2a
pings h1 10.9.0.2
expect "datagrams with the second mark" 3 "$(counted h1 remarked)"
expect "datagrams with the first mark, after the change" 3 "$(counted h1 marked)"

# An endpoint that is not on the cable but behind the default route: only the mark decides.
address h2 lo 203.0.113.8/32
on h1 wg set wg1 peer "$(public h2)" endpoint 203.0.113.8:50002
pings h1 203.0.113.7 -I 10.9.0.1
on h1 wg set wg1 fwmark off
expect "fwmark" off "$(on h1 wg show wg1 fwmark)"
