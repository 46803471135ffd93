#!/usr/bin/env bash
# The endpoint follows a peer to another port, address and family, but only by authentic packets.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
pings h2 10.9.0.1
expect "endpoint of h2" 192.0.2.2:50002 "$(endpoint h1 wg1)"

# Another port: h1 learns it from the next packet.
on h2 wg set wg2 listen-port 50003
pings h2 10.9.0.1
expect "endpoint of h2 after a change of port" 192.0.2.2:50003 "$(endpoint h1 wg1)"
pings h1 10.9.0.2

# Another address.
ip -n h2 addr add 192.0.2.22/24 dev e2
ip -n h2 addr del 192.0.2.2/24 dev e2
ip -n h2 addr add 192.0.2.22/24 dev e2 2>/dev/null || true # removing the first address took the second with it
pings h2 10.9.0.1
expect "endpoint of h2 after a change of address" 192.0.2.22:50003 "$(endpoint h1 wg1)"
pings h1 10.9.0.2

# A well-formed datagram from another sender does not move the endpoint.
printf '\x04\0\0\0\x01\x02\x03\x04\0\0\0\0\0\0\0\0%016d' 0 | datagram h2 192.0.2.1 50001
expect "endpoint of h2 after a forged datagram" 192.0.2.22:50003 "$(endpoint h1 wg1)"
pings h1 10.9.0.2
