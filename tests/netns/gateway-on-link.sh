#!/usr/bin/env bash
# timeout: 60
# Where clients' addresses are of the uplink's own network, `up` and `plan` say so, and what they name helps.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"

need nft
gateway_hosts
ip -n c1 addr add 2001:db8:113::8:2/128 dev wg3 nodad
ip -n c1 addr add 203.0.113.130/32 dev wg3
on_link() { # LINE... : c1 has addresses of the uplink's network besides
  PEER_LINE[c1]="AllowedIPs = +203.0.113.130/32, +2001:db8:113::8:2/128"
  gateway_file "#! Gateway = up0" "#! Inbound = all" "$@"
}
named="is on the link of up0"
gateway_file "#! Gateway = up0"
good linerate plan wg1
! grep -q "$named" "$WORK/said" || fail "a network of its own is taken for one of the link"

on_link
good linerate plan wg1
said "IPv4" "203.0.113.130/32 is part of 203.0.113.0/24, which $named.*Masquerade = ipv4.*proxy_arp"
said "IPv6" "2001:db8:113::8:2/128 is part of 2001:db8:113::/64, which $named.*Masquerade = ipv6.*ndppd"
good linerate up wg1
said "up" "$named"
new_sessions
pings c1 10.9.0.1
no_ping c1 203.0.113.9 -I 203.0.113.130
no_ping c1 2001:db8:113::9 -I 2001:db8:113::8:2

say "the host answers for them"
on h1 sysctl -qw net.ipv4.conf.up0.proxy_arp=1
# The kernel answers for neighbours only where IPv6 forwards in the old way; ndppd does everywhere.
on h1 sysctl -qw net.ipv6.conf.up0.proxy_ndp=1 net.ipv6.conf.up0.forwarding=1
ip -n h1 -6 neigh add proxy 2001:db8:113::8:2 dev up0
ip -n inet neigh flush dev i0
pings c1 203.0.113.9 -I 203.0.113.130
pings c1 2001:db8:113::9 -I 2001:db8:113::8:2
on h1 sysctl -qw net.ipv4.conf.up0.proxy_arp=0 net.ipv6.conf.up0.proxy_ndp=0 net.ipv6.conf.up0.forwarding=0
ip -n h1 -6 neigh del proxy 2001:db8:113::8:2 dev up0
ip -n inet neigh flush dev i0

say "they are translated"
on_link "#! Masquerade = both"
good linerate reload wg1
! grep -q "$named" "$WORK/said" || fail "the warning stays"
pings c1 203.0.113.9 -I 203.0.113.130
pings c1 2001:db8:113::9 -I 2001:db8:113::8:2
good linerate down wg1
