#!/usr/bin/env bash
# timeout: 180
# Full tunnels of both families: everything goes through, except the tunnel's own datagrams and more specific routes.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
# What is behind the tunnel, and in the clear beside it: the same addresses on h2, seen on its two devices.
address h2 lo 203.0.113.7/32 2001:db8:7::7/128
routes() {
  ip -n h1 route add default via 192.0.2.2
  ip -n h1 -6 route add default via 2001:db8::2
  on h1 sysctl -qw net.ipv4.conf.all.rp_filter="$1" net.ipv4.conf.e1.rp_filter="$1"
}
count h2 in inside iifname wg2 ip daddr 203.0.113.7
count h2 in inside6 iifname wg2 ip6 daddr 2001:db8:7::7
count h2 in beside iifname e2 ip daddr 203.0.113.7
count h2 in beside6 iifname e2 ip6 daddr 2001:db8:7::7
count h2 in datagrams iifname e2 udp dport 50002
count h2 in looped iifname wg2 udp dport 50002
figures() {
  local name
  for name in inside inside6 beside beside6; do counted h2 $name; done | paste -sd ' '
}

for endpoint in 192.0.2.2:50002 "[2001:db8::2]:50002"; do
  for who in wg-quick linerate; do
    for filter in 0 1; do
      say "$who: endpoint $endpoint, reverse path filter $filter"
      new_h1
      routes $filter
      on h2 nft reset counters >/dev/null
      ENDPOINT=$endpoint tunnel_file wg1 0.0.0.0/0,::/0
      remember
      good $who up wg1
      pings h1 203.0.113.7
      pings h1 2001:db8:7::7
      expect "pings inside and beside" "3 3 0 0" "$(figures)"
      expect_at_least "datagrams beside" 6 "$(counted h2 datagrams)"
      expect "datagrams inside" 0 "$(counted h2 looped)"
      pings h1 192.168.77.2 # nearer than all
      pings h1 fd77::2
      pings h1 192.0.2.2
      pings h2 10.9.0.1
      good $who down wg1
      is_gone wg1
      as_before "$who down"
      pings h1 203.0.113.7
      pings h1 2001:db8:7::7
      expect "pings inside and beside" "3 3 3 3" "$(figures)"
    done
  done
done

say "an address of the tunnel is not to be reached from the cable"
new_h1
routes 0
tunnel_file wg1 0.0.0.0/0,::/0
for who in wg-quick linerate; do
  good $who up wg1
  pings h1 203.0.113.7
  on lan ip route replace 10.9.0.1 via 192.168.77.1
  no_ping lan 10.9.0.1
  good $who down wg1
  is_gone wg1
done
