#!/usr/bin/env bash
# The MTU that clamps the padding is that of the inner packet's route, where it is below the device's.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
ip -n h1 link set wg1 mtu 1300
ip -n h2 link set wg2 mtu 1300
ip -n h1 route add 10.9.0.2/32 dev wg1 mtu 1299
ip -n h2 route add 10.9.0.1/32 dev wg2 mtu 1299
# 1269 + 28 = 1297 bytes inside, clamped to 1299 instead of 1312: 1359 bytes outside. A path that takes no more:
block h1 out udp dport 50002 ip length gt 1359
block h2 out udp dport 50001 ip length gt 1359
pings h1 10.9.0.2 -s 1269
