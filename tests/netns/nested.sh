#!/usr/bin/env bash
# timeout: 60
# A tunnel inside a tunnel.
source "$(dirname "$0")/lib.sh"
need iperf3

two_hosts
tunnel v4
key inner1 inner2
daemon h1 wg3
daemon h2 wg4
on h1 wg set wg3 listen-port 50003 private-key "$WORK/inner1.key" \
  peer "$(public inner2)" allowed-ips 10.10.0.2/32,fd10::2/128 endpoint 10.9.0.2:50004
on h2 wg set wg4 listen-port 50004 private-key "$WORK/inner2.key" \
  peer "$(public inner1)" allowed-ips 10.10.0.1/32,fd10::1/128 endpoint '[fd09::1]:50003'
wg_address h1 wg3 10.10.0.1/24 fd10::1/64
wg_address h2 wg4 10.10.0.2/24 fd10::2/64
ip -n h1 link set wg3 mtu 1340
ip -n h2 link set wg4 mtu 1340

pings h1 10.10.0.2
pings h1 fd10::2 -s 1292
pings h2 10.10.0.1 -s 1312
iperf h1 h2 10.10.0.2
expect_at_least "TCP in the inner tunnel, Mbit/s" 1 "$RATE"
# The inner tunnel with the outer one's MTU: its datagrams go through the outer one in fragments.
ip -n h1 link set wg3 mtu 1420
ip -n h2 link set wg4 mtu 1420
pings h1 10.10.0.2 -s 1392
iperf h1 h2 10.10.0.2
expect_at_least "TCP in an inner tunnel of the same MTU, Mbit/s" 1 "$RATE"
