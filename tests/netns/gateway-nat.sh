#!/usr/bin/env bash
# timeout: 90
# Clients of a gateway reach the internet by NAT44 and NAT66; up and down leave the host as it was, in both manners.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"

need nft nc
gateway_hosts
gateway_file "#! Gateway = auto" "#! Masquerade = both"
remember_all
for who in linerate wg-quick; do
  good $who up wg1
  new_sessions
  pings c1 10.9.0.1
  pings c1 198.18.0.1
  pings c2 198.18.0.1
  pings c1 2001:db8:18::1
  pings c2 2001:db8:18::1
  expect "$who: c1 is seen by IPv4 as" 203.0.113.1 "$(seen_as c1 198.18.0.1)"
  expect "$who: c1 is seen by IPv6 as" 2001:db8:113::1 "$(seen_as c1 2001:db8:18::1)"
  pings c1 10.9.0.3
  pings c2 fd09::2

  say "only the tunnel and the gateway's interface forward"
  expect "ip_forward" 0 "$(sysctl_of net.ipv4.ip_forward)"
  expect "forwarding of up0 and wg1" "1 1" "$(sysctl_of net.ipv4.conf.up0.forwarding) $(sysctl_of net.ipv4.conf.wg1.forwarding)"
  expect "forwarding of lan1 and e1" "0 0" "$(sysctl_of net.ipv4.conf.lan1.forwarding) $(sysctl_of net.ipv4.conf.e1.forwarding)"
  no_ping c1 192.168.77.2

  say "what is the host's own or others' is not translated"
  ip -n inet route add 192.168.77.0/24 via 203.0.113.1
  on h1 sysctl -qw net.ipv4.conf.lan1.forwarding=1
  expect "lan is seen as" 192.168.77.2 "$(seen_as lan 198.18.0.1)"
  on h1 sysctl -qw net.ipv4.conf.lan1.forwarding=0
  ip -n inet route del 192.168.77.0/24

  good $who down wg1
  is_gone wg1
  all_as_before "$who down"
done

say "a value that somebody else changed meanwhile stays"
good linerate up wg1
on h1 sysctl -qw net.ipv4.conf.up0.forwarding=0
good linerate down wg1
is_gone wg1
all_as_before "down after a change"

say "what was on already stays on"
on h1 sysctl -qw net.ipv4.conf.up0.forwarding=1
remember_all
good linerate up wg1
new_sessions
pings c1 198.18.0.1
good linerate down wg1
is_gone wg1
all_as_before "down, where up0 forwarded before"
