#!/usr/bin/env bash
# A peer that loses IPv4 and comes back over IPv6 is followed, and the other way round.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
pings h2 10.9.0.1
expect "endpoint of h2" 192.0.2.2:50002 "$(endpoint h1 wg1)"

ip -n h2 addr del 192.0.2.2/24 dev e2
on h2 wg set wg2 peer "$(public h1)" endpoint '[2001:db8::1]:50001'
pings h2 10.9.0.1
expect "endpoint of h2 over IPv6" '[2001:db8::2]:50002' "$(endpoint h1 wg1)"
pings h1 10.9.0.2

ip -n h2 addr add 192.0.2.2/24 dev e2
ip -n h2 addr del 2001:db8::2/64 dev e2
on h2 wg set wg2 peer "$(public h1)" endpoint 192.0.2.1:50001
pings h2 10.9.0.1
expect "endpoint of h2 over IPv4 again" 192.0.2.2:50002 "$(endpoint h1 wg1)"
pings h1 10.9.0.2
