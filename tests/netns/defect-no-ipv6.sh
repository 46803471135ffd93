#!/usr/bin/env bash
# D9: a file for both families on a host without IPv6: the tunnel is there, and a warning says what is not.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
address h2 lo 203.0.113.7/32
count h2 in inside iifname wg2 ip daddr 203.0.113.7
no_ipv6() {
  new_h1
  on h1 sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
}
for allowed in 10.9.0.2/32,203.0.113.0/24,fd09::2/128 0.0.0.0/0,::/0; do
  tunnel_file wg1 $allowed
  if has_original; then
    no_ipv6
    bad original up wg1
    no_link wg1 || fail "the original: expected no interface, there is one"
  fi
  for who in wg-quick linerate; do
    no_ipv6
    remember
    good $who up wg1
    said "$who" "Warning: IPv6 is disabled .*fd09::1/64"
    pings h1 10.9.0.2
    pings h1 203.0.113.7
    good linerate reload wg1
    pings h1 10.9.0.2
    good $who down wg1
    is_gone wg1
    as_before "$who down"
  done
done
expect "pings that came through the tunnel" 12 "$(counted h2 inside)"
