#!/usr/bin/env bash
# timeout: 60
# Jumbo packets up to the largest tunnel MTU, a small one, and a change of the MTU under traffic.
source "$(dirname "$0")/lib.sh"
need iperf3 jq

two_hosts
tunnel v4
mtu() { ip -n h1 link set wg1 mtu "$1" && ip -n h2 link set wg2 mtu "$1"; }
outer_mtu() { ip -n h1 link set e1 mtu "$1" && ip -n h2 link set e2 mtu "$1"; }

# 65455 = 65535 - 80: with 32 bytes of message, 8 of UDP and 40 of IPv6 the outer packet is at its limit.
outer_mtu 65535
for mtu in 9000 20000 65455; do
  mtu $mtu
  for outside in v4 v6; do
    # A new tunnel for the other family: some peers send nothing after a change of family.
    stop_daemon wg1 && stop_daemon wg2 && tunnel $outside && mtu $mtu
    pings h1 10.9.0.2 -s $((mtu - 28)) -M do
    pings h2 fd09::1 -s $((mtu - 48)) -M do
  done
  iperf h1 h2 10.9.0.2
  expect_at_least "TCP at an MTU of $mtu, Mbit/s" 1 "$RATE"
  # What comes from peers behind Ethernet still travels in large GSO packets.
  segments=$(ip -n h1 -d -j link show wg1 | jq .[].gso_max_segs)
  expect_at_least "segments in a GSO packet at an MTU of $mtu" 40 "$segments"
done

# The same large inner packets, in outer fragments.
outer_mtu 1500
pings h1 10.9.0.2 -s 60000 -M do

# The smallest that IPv6 allows.
mtu 1280
pings h1 10.9.0.2 -s 1252 -M do
pings h1 fd09::2 -s 1232 -M do

# Up and down while data flows: nothing may stop.
head -c 30000000 /dev/urandom >"$WORK/file"
(for _ in 1 2 3 4 5; do for mtu in 1420 1300 8000; do mtu $mtu && sleep 0.1; done; done) &
changes=$!
send_file h1 h2 10.9.0.2 "$WORK/file"
wait $changes
pings h1 10.9.0.2
