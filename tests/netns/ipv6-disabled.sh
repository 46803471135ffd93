#!/usr/bin/env bash
# On a host without IPv6 the tunnel works over IPv4.
source "$(dirname "$0")/lib.sh"

two_hosts
on h1 sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
key h1 h2
daemon h1 wg1
daemon h2 wg2
on h1 wg set wg1 listen-port 50001 private-key "$WORK/h1.key" peer "$(public h2)" allowed-ips 10.9.0.2/32,fd09::2/128 endpoint 192.0.2.2:50002
on h2 wg set wg2 listen-port 50002 private-key "$WORK/h2.key" peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128 endpoint 192.0.2.1:50001
wg_address h1 wg1 10.9.0.1/24
wg_address h2 wg2 10.9.0.2/24 fd09::2/64
pings h1 10.9.0.2
pings h2 10.9.0.1

# An IPv6 endpoint cannot be reached from here; that is no reason to stop.
on h1 wg set wg1 peer "$(public h2)" endpoint '[2001:db8::2]:50002'
no_ping h1 10.9.0.2
alive wg1 || fail "the daemon ended"
on h1 wg set wg1 peer "$(public h2)" endpoint 192.0.2.2:50002
pings h1 10.9.0.2 -W 8
on h1 wg set wg1 listen-port 50011
pings h1 10.9.0.2
