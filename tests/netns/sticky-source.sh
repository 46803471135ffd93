#!/usr/bin/env bash
# timeout: 60
# Answers leave from the address to which the peer wrote, as long as that address and that way exist.
source "$(dirname "$0")/lib.sh"

host h1 r h2
cable h1 e1 r r1
cable h1 f1 r q1 # a second way from h1 to the router
cable r r2 h2 e2
forwarding r
on h1 sysctl -qw net.ipv4.conf.all.arp_ignore=1
address h1 e1 192.0.2.1/24 192.0.2.11/24 2001:db8::1/64 2001:db8::11/64
address h1 f1 198.51.100.1/24 2001:db8:3::1/64
address r r1 192.0.2.254/24 2001:db8::fe/64
address r q1 198.51.100.254/24 2001:db8:3::fe/64
address r r2 203.0.113.254/24 2001:db8:2::fe/64
address h2 e2 203.0.113.2/24 2001:db8:2::2/64
ip -n h1 route add default via 192.0.2.254
ip -n h1 -6 route add default via 2001:db8::fe
ip -n h2 route add default via 203.0.113.254
ip -n h2 -6 route add default via 2001:db8:2::fe
tunnel none

for family in v4 v6; do
  case $family in
    v4) ip=ip first=192.0.2.1 second=192.0.2.11 third=198.51.100.1 via=198.51.100.254 prefix=24 there=203.0.113.0/24 b='' e='' peer=203.0.113.2 ;;
    v6) ip=ip6 first=2001:db8::1 second=2001:db8::11 third=2001:db8:3::1 via=2001:db8:3::fe prefix=64 there=2001:db8:2::/64 b='[' e=']' peer='[2001:db8:2::2]' ;;
  esac
  say "$family: h2 writes to the second address of h1, and is answered from there"
  # Fresh daemons for each family, so that only the source address is in question.
  [[ $family == v4 ]] || { stop_daemon wg1 && stop_daemon wg2 && tunnel none; }
  on h2 wg set wg2 peer "$(public h1)" endpoint "$b$second$e:50001"
  count h2 in from_second_$family $ip saddr $second udp dport 50002
  count h2 in from_elsewhere_$family $ip saddr != $second udp dport 50002
  pings h2 10.9.0.1
  pings h1 10.9.0.2
  expect "endpoint of h1 on h2" "$b$second$e:50001" "$(endpoint h2 wg2)"
  expect "datagrams from another address" 0 "$(counted h2 from_elsewhere_$family)"
  expect_at_least "datagrams from the second address" 6 "$(counted h2 from_second_$family)"

  say "$family: that address disappears, and h1 finds another by itself"
  ip -n h1 addr del $second/$prefix dev e1
  wait_for 10 "the tunnel to work again" on h1 ping -n -q -c 1 -W 1 10.9.0.2
  pings h1 10.9.0.2
  [[ $(endpoint h2 wg2) != "$b$second$e:50001" ]] || fail "h2 still writes to an address that is gone"
  address h1 e1 $second/$prefix

  say "$family: the way to h2 moves to another device of h1"
  on h2 wg set wg2 peer "$(public h1)" endpoint "$b$first$e:50001"
  pings h2 10.9.0.1
  ip -n h1 route add $there via $via dev f1
  wait_for 10 "the tunnel to work over the other device" on h1 ping -n -q -c 1 -W 1 10.9.0.2
  pings h1 10.9.0.2
  # IPv4: an address of a device that is no longer on the route is given up. IPv6: it may be kept (the kernel's
  # module does), so only that it works is asked for.
  [[ $family == v6 ]] || expect "endpoint of h1 on h2" "$third:50001" "$(endpoint h2 wg2)"
  ip -n h1 route del $there via $via dev f1
  wait_for 10 "the tunnel to work over the first device again" on h1 ping -n -q -c 1 -W 1 10.9.0.2
done
