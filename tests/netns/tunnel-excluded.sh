#!/usr/bin/env bash
# ExcludedIPs and ExcludeLAN: what they name stays outside of the tunnel, whatever its prefixes, and nothing else does.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
address h2 lo 203.0.113.7/32 203.0.113.9/32 2001:db8:7::7/128 192.168.77.9/32
ip -n h1 route add default via 192.0.2.2
ip -n h1 -6 route add default via 2001:db8::2
count h2 in inside iifname wg2 ip daddr '{ 203.0.113.7, 203.0.113.9, 192.168.77.9 }'
count h2 in inside6 iifname wg2 ip6 daddr 2001:db8:7::7
through() { # ADDRESS : how many of three pings came through the tunnel
  on h2 nft reset counters >/dev/null
  pings h1 "$1"
  INSIDE=$(($(counted h2 inside) + $(counted h2 inside6)))
}
inside() { through "$1" && expect "pings to $1 through the tunnel" 3 "$INSIDE"; }
outside() { through "$1" && expect "pings to $1 through the tunnel" 0 "$INSIDE"; }

for who in wg-quick linerate; do
  for allowed in 0.0.0.0/0,::/0 203.0.113.0/24,2001:db8:7::/48,10.9.0.2/32; do
    say "$who: ExcludedIPs of $allowed"
    tunnel_file wg1 $allowed "#! ExcludedIPs = 203.0.113.8/30, 2001:db8:7::7"
    remember
    good $who up wg1
    inside 203.0.113.7
    outside 203.0.113.9
    outside 2001:db8:7::7
    good $who down wg1
    is_gone wg1
    as_before "$who down"
  done

  say "$who: the LAN, where the tunnel has a nearer route than the LAN's own"
  tunnel_file wg1 0.0.0.0/0,192.168.77.8/29 "#! ExcludeLAN = false"
  remember
  good $who up wg1
  inside 192.168.77.9
  pings h1 192.168.77.2
  good $who down wg1
  is_gone wg1
  as_before "$who down"
  tunnel_file wg1 0.0.0.0/0,192.168.77.8/29 "#! ExcludeLAN = true"
  good $who up wg1
  pings h1 192.168.77.2
  inside 192.168.77.9
  inside 203.0.113.7
  good $who down wg1
  is_gone wg1
  as_before "$who down"
done
