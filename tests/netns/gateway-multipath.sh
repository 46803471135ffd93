#!/usr/bin/env bash
# timeout: 60
# Gateway = auto takes the interfaces of all next hops of a default route, and names one whose name it cannot take.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"

need nft
gateway_hosts
for n in 1 2; do
  cable h1 "up$n" inet "i$n"
  address h1 "up$n" "203.0.11$((n + 3)).1/24" "2001:db8:11$((n + 3))::1/64"
  address inet "i$n" "203.0.11$((n + 3)).9/24" "2001:db8:11$((n + 3))::9/64"
done
gateway_file "#! Gateway = auto" "#! Masquerade = both"
ip -n h1 route replace default nexthop via 203.0.113.9 nexthop via 203.0.114.9
ip -n h1 -6 route replace default nexthop via 2001:db8:113::9 nexthop via 2001:db8:115::9
remember_all
good linerate up wg1
new_sessions
for device in up0 up1 up2; do expect "forwarding of $device" 1 "$(sysctl_of "net.ipv4.conf.$device.forwarding")"; done
expect "forwarding of lan1" 0 "$(sysctl_of net.ipv4.conf.lan1.forwarding)"
for to in 198.18.0.1 198.18.0.2 2001:db8:18::1; do pings c1 "$to" && pings c2 "$to"; done
good linerate down wg1
is_gone wg1
all_as_before down

ip -n h1 link set up1 down
ip -n h1 link set up1 name 'up~1'
ip -n h1 link set 'up~1' up
ip -n h1 route replace default nexthop via 203.0.113.9 nexthop via 203.0.114.9
good linerate plan wg1
said "plan" 'Gateway = auto: nothing is forwarded to the interface of a default route: .up~1. is not an interface name'
good linerate up wg1
said "up" "up~1. is not an interface name"
good linerate down wg1
