#!/usr/bin/env bash
# A packet comes out of the tunnel only if its source address is one that its sender may use.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
key h3
on h1 wg set wg1 peer "$(public h3)" allowed-ips 10.9.0.3/32,fd09::3/128
address h2 wg2 10.9.0.3/32 10.9.0.4/32 fd09::3/128
pings h1 10.9.0.2

count h1 in foreign iifname wg1 ip saddr '{ 10.9.0.3, 10.9.0.4 }'
count h1 in foreign6 iifname wg1 ip6 saddr fd09::3
before=$(received h1 wg1 h2)
no_ping h2 10.9.0.1 -I 10.9.0.3 # another peer's
no_ping h2 10.9.0.1 -I 10.9.0.4 # nobody's
no_ping h2 fd09::1 -I fd09::3
expect "bytes that h1 received from h2, which leave out what was not admitted" "$before" "$(received h1 wg1 h2)"
expect "packets that came out on h1 with a source that is not h2's" "0 0" "$(counted h1 foreign) $(counted h1 foreign6)"
pings h2 10.9.0.1

# The longest prefix decides: all of 10.9.0.0/24 is h2's, but not what h3 has of it.
on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.0.0/24,fd09::/64
no_ping h2 10.9.0.1 -I 10.9.0.3
pings h2 10.9.0.1 -I 10.9.0.4
on h1 wg set wg1 peer "$(public h3)" remove
pings h2 10.9.0.1 -I 10.9.0.3
pings h2 fd09::1 -I fd09::3
