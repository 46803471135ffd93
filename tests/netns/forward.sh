#!/usr/bin/env bash
# timeout: 60
# Two networks joined by the tunnel of their routers: what is forwarded has other offload headers than what is local.
source "$(dirname "$0")/lib.sh"
need iperf3 nc

two_hosts
host a b
cable a e3 h1 l1
cable b e4 h2 l2
address a e3 172.16.1.2/24 fd01::2/64
address h1 l1 172.16.1.1/24 fd01::1/64
address b e4 172.16.2.2/24 fd02::2/64
address h2 l2 172.16.2.1/24 fd02::1/64
forwarding h1 h2
for end in "a 172.16.1.1 fd01::1" "b 172.16.2.1 fd02::1"; do
  read -r at v4 v6 <<<"$end"
  ip -n "$at" route add default via "$v4"
  ip -n "$at" -6 route add default via "$v6"
done
tunnel v4
on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.0.2/32,172.16.2.0/24,fd02::/64
on h2 wg set wg2 peer "$(public h1)" allowed-ips 10.9.0.1/32,172.16.1.0/24,fd01::/64
ip -n h1 route add 172.16.2.0/24 dev wg1
ip -n h1 -6 route add fd02::/64 dev wg1
ip -n h2 route add 172.16.1.0/24 dev wg2
ip -n h2 -6 route add fd01::/64 dev wg2

pings a 172.16.2.2
pings b fd01::2
# Too large for the tunnel, and not to be fragmented: the router tells the sender.
on a ping -n -c 1 -W 2 -M do -s 1472 172.16.2.2 >"$WORK/large" 2>&1 || true
grep -qE 'mtu ?= ?1420|Frag needed' "$WORK/large" || fail "a ping above the tunnel's MTU: expected 'mtu = 1420', saw $(tail -n +2 "$WORK/large")"

for inside in 172.16.2.2 fd02::2; do
  iperf a b $inside
  expect_at_least "TCP, Mbit/s" 1 "$RATE"
  iperf a b $inside -R
  expect_at_least "TCP backwards, Mbit/s" 1 "$RATE"
  iperf a b $inside -u -b 20M -l 1300
  expect_at_least "UDP at 20 Mbit/s, Mbit/s" 15 "$RATE"
done
head -c 20000000 /dev/urandom >"$WORK/file"
send_file a b 172.16.2.2 "$WORK/file"
send_file b a fd01::2 "$WORK/file"

say "the same with every offload of the inner network off: packets come one by one"
for end in a/e3 h1/l1 h2/l2 b/e4; do on "${end%/*}" ethtool -K "${end#*/}" tso off gso off gro off tx off rx off >/dev/null 2>&1 || true; done
send_file a b 172.16.2.2 "$WORK/file"
send_file b a fd01::2 "$WORK/file"
