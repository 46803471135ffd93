#!/usr/bin/env bash
# timeout: 90
# A path narrower than the tunnel's datagrams: they go in fragments, and throughput does not collapse.
source "$(dirname "$0")/lib.sh"
need iperf3

FLOOR=20 # Mbit/s: hundreds of times above what a sender that retries its trains for ever achieves

for outside in v4 v6; do
  say "the narrow link is the host's own, over $outside"
  ip netns del h1 2>/dev/null || true
  ip netns del h2 2>/dev/null || true
  two_hosts
  ip -n h1 link set e1 mtu 1280
  ip -n h2 link set e2 mtu 1280
  tunnel $outside
  pings h1 10.9.0.2 -s 1392 -M do
  iperf h1 h2 10.9.0.2 -t 2
  expect_at_least "TCP, Mbit/s" $FLOOR "$RATE"
  iperf h1 h2 fd09::2 -t 2 -R
  expect_at_least "TCP backwards, Mbit/s" $FLOOR "$RATE"

  say "the link becomes narrow under a tunnel that worked, over $outside"
  ip -n h1 link set e1 mtu 1500
  ip -n h2 link set e2 mtu 1500
  iperf h1 h2 10.9.0.2
  ip -n h1 link set e1 mtu 1300
  ip -n h2 link set e2 mtu 1300
  iperf h1 h2 10.9.0.2 -t 2
  expect_at_least "TCP, Mbit/s" $FLOOR "$RATE"
  stop_daemon wg1
  stop_daemon wg2
done

for outside in v4 v6; do
  say "the narrow link is behind a router, over $outside"
  for old in h1 r h2; do ip netns del $old 2>/dev/null || true; done
  routed_hosts
  ip -n r link set r2 mtu 1280
  ip -n h2 link set e2 mtu 1280
  tunnel $outside
  # The first packets may be lost to learn the path's MTU.
  wait_for 5 "a ping of full size" on h1 ping -n -q -c 1 -W 1 -s 1392 10.9.0.2
  pings h1 10.9.0.2 -s 1392
  iperf h1 h2 10.9.0.2 -t 2
  expect_at_least "TCP, Mbit/s" $FLOOR "$RATE"
  iperf h1 h2 10.9.0.2 -t 2 -R
  expect_at_least "TCP backwards, Mbit/s" $FLOOR "$RATE"
  stop_daemon wg1
  stop_daemon wg2
done
