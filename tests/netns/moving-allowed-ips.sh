#!/usr/bin/env bash
# A prefix belongs to one peer: the one it was given to last. Longest prefix first; host bits are masked.
source "$(dirname "$0")/lib.sh"

two_hosts
host h3
cable h1 g1 h3 e3
address h1 g1 198.51.100.1/24
address h3 e3 198.51.100.3/24
tunnel v4
key h3
daemon h3 wg3
on h3 wg set wg3 listen-port 50003 private-key "$WORK/h3.key" peer "$(public h1)" allowed-ips 10.9.0.1/32 endpoint 198.51.100.1:50001
on h1 wg set wg1 peer "$(public h3)" allowed-ips 10.9.0.3/32 endpoint 198.51.100.3:50003
wg_address h3 wg3 10.9.0.3/24
pings h1 10.9.0.2
pings h1 10.9.0.3

allowed() { on h1 wg show wg1 allowed-ips | awk -v k="$(public "$1")" '$1 == k { $1 = ""; print substr($0, 2) }'; }

# The same address on both; it goes where the prefix points.
address h2 wg2 10.9.1.1/32
address h3 wg3 10.9.1.1/32
ip -n h1 route add 10.9.1.0/24 dev wg1
count h2 in at_h2 iifname wg2 ip daddr 10.9.1.1
count h3 in at_h3 iifname wg3 ip daddr 10.9.1.1
on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.0.2/32,10.9.1.0/24
pings h1 10.9.1.1
expect "pings at h2, at h3" "3 0" "$(counted h2 at_h2) $(counted h3 at_h3)"

on h1 wg set wg1 peer "$(public h3)" allowed-ips 10.9.0.3/32,10.9.1.0/24
expect "allowed ips of h2" "10.9.0.2/32" "$(allowed h2)"
pings h1 10.9.1.1
expect "pings at h2, at h3" "3 3" "$(counted h2 at_h2) $(counted h3 at_h3)"

# A longer prefix of the other peer wins, whichever came first; taken away, the shorter one counts again.
on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.0.2/32,10.9.1.1/32
pings h1 10.9.1.1
expect "pings at h2, at h3" "6 3" "$(counted h2 at_h2) $(counted h3 at_h3)"
on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.0.2/32
pings h1 10.9.1.1
expect "pings at h2, at h3" "6 6" "$(counted h2 at_h2) $(counted h3 at_h3)"

# Host bits are masked, everything may be allowed, nothing may be allowed.
on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.2.77/24,0.0.0.0/0,::/0,fd09::abcd/64
expect "allowed ips of h2" "0.0.0.0/0 10.9.2.0/24 ::/0 fd09::/64" "$(allowed h2 | tr ' ' '\n' | sort | tr '\n' ' ' | sed 's/ $//')"
pings h1 10.9.0.2
on h1 wg set wg1 peer "$(public h2)" allowed-ips ''
expect "allowed ips of h2" "(none)" "$(allowed h2)"
no_ping h1 10.9.0.2
on h1 wg set wg1 peer "$(public h3)" remove
expect "peers of h1" "$(public h2)" "$(on h1 wg show wg1 peers)"
