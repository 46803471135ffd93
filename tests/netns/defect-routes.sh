#!/usr/bin/env bash
# timeout: 60
# D1, D10: a route that exists already, or one that contains the endpoint, does not cost the tunnel.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
address h2 lo 192.168.77.2/32 172.16.1.7/32
count h2 in inside iifname wg2 ip daddr 192.168.77.2

say "D1: the LAN has a route already"
tunnel_file wg1 10.9.0.2/32,192.168.77.0/24
if has_original; then
  bad original up wg1
  said "the original" "File exists"
  no_link wg1 || fail "the original: expected no interface, there is one"
  new_h1
fi
for who in wg-quick linerate; do
  say "$who: skip, the default"
  remember
  good $who up wg1
  said "$who" "192.168.77.0/24 .*lan1"
  pings h1 10.9.0.2
  pings h1 192.168.77.2
  expect "pings that came through the tunnel" 0 "$(counted h2 inside)"
  good $who down wg1
  is_gone wg1
  as_before "$who down"
done

for who in wg-quick linerate; do
  say "$who: metric"
  tunnel_file wg1 10.9.0.2/32,192.168.77.0/24 "#! RouteConflict = metric"
  remember
  good $who up wg1
  said "$who" "192.168.77.0/24 .*lan1"
  pings h1 192.168.77.2
  expect "pings that came through the tunnel" 0 "$(counted h2 inside)"
  ip -n h1 link set lan1 down
  pings h1 192.168.77.2
  expect "pings that came through the tunnel once the LAN is gone" 3 "$(counted h2 inside)"
  ip -n h1 link set lan1 up
  address h1 lan1 fd77::1/64
  good $who down wg1
  is_gone wg1
  as_before "$who down"

  say "$who: replace"
  tunnel_file wg1 10.9.0.2/32,192.168.77.0/24 "#! RouteConflict = replace"
  remember
  good $who up wg1
  said "$who" "192.168.77.0/24 .*lan1"
  pings h1 192.168.77.2
  expect "pings that came through the tunnel" 6 "$(counted h2 inside)"
  good $who down wg1
  is_gone wg1
  as_before "$who down"
  pings h1 192.168.77.2
  expect "pings that came through the tunnel" 6 "$(counted h2 inside)"

  say "$who: fail"
  tunnel_file wg1 10.9.0.2/32,192.168.77.0/24 "#! RouteConflict = fail"
  bad $who up wg1
  said "$who" "192.168.77.0/24 .*lan1.*RouteConflict"
  as_before "$who up that the policy refuses"
  on h2 nft reset counters >/dev/null
done

say "D10: the endpoint lies in an allowed IP that is narrower than the LAN's route"
widen() {
  address h1 e1 172.16.0.1/16
  address h2 e2 172.16.1.2/16
}
ENDPOINT=172.16.1.2:50002 tunnel_file wg1 172.16.1.0/24,10.9.0.2/32
count h2 in inner iifname wg2 ip daddr 172.16.1.7
if has_original; then
  new_h1
  widen
  good original up wg1
  expect "the original: the way to the endpoint" wg1 "$(ip -n h1 route get 172.16.1.2 | awk '{ for (i = 1; i < NF; i++) if ($i == "dev") print $(i + 1) }')"
  no_ping h1 172.16.1.7
fi
for who in wg-quick linerate; do
  new_h1
  widen
  remember
  good $who up wg1
  pings h1 172.16.1.7
  pings h1 172.16.1.2 # the endpoint's address is inside as well; only the tunnel's datagrams go beside it
  good $who down wg1
  is_gone wg1
  as_before "$who down"
done
expect "pings that came through the tunnel" 6 "$(counted h2 inner)"
