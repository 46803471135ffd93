#!/usr/bin/env bash
# IPv4 and IPv6 through the tunnel, over IPv4 and IPv6, started from either end.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
pings h1 10.9.0.2
pings h1 fd09::2
pings h2 10.9.0.1
pings h2 fd09::1
expect "endpoint of h2 on h1" 192.0.2.2:50002 "$(endpoint h1 wg1)"

point v6
pings h2 10.9.0.1
pings h2 fd09::1
pings h1 10.9.0.2
pings h1 fd09::2
expect "endpoint of h2 on h1" '[2001:db8::2]:50002' "$(endpoint h1 wg1)"

# A burst, and every size around the padding and around the MTU.
on h1 ping -n -q -c 500 -i 0.002 -W 2 10.9.0.2 | tee "$WORK/burst"
grep -q ' 0% packet loss' "$WORK/burst" || fail "500 pings in a row: $(grep loss "$WORK/burst")"
for size in 0 1 3 4 5 19 20 21 1371 1376 1387 1388 1391 1392; do pings h1 10.9.0.2 -s $size; done
pings h1 10.9.0.2 -s 4000 # three fragments inside
pings h1 fd09::2 -s 4000
