#!/usr/bin/env bash
# An inner packet is padded to a multiple of 16, but never beyond the MTU of the tunnel's device.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
ip -n h1 link set wg1 mtu 1299
ip -n h2 link set wg2 mtu 1299
# 1299 bytes inside would be padded to 1312. Outside they are 1299 + 32 (message) + 8 (UDP) + 20 (IPv4) = 1359.
count h2 in exact ip length 1359 udp dport 50002
count h2 in larger ip length gt 1359 udp dport 50002
pings h1 10.9.0.2 -s 1271 -M do
expect "datagrams of exactly 1359 bytes" 3 "$(counted h2 exact)"
expect "datagrams above 1359 bytes" 0 "$(counted h2 larger)"

# One multiple of 16 below: padded as usual, 1280 + 60.
count h2 in padded ip length 1340 udp dport 50002
pings h1 10.9.0.2 -s 1250 -M do # 1278 inside
expect "datagrams of exactly 1340 bytes" 3 "$(counted h2 padded)"

# Over IPv6 (whose length field leaves its own header out) the same 1299 are 1339.
stop_daemon wg1 && stop_daemon wg2 && tunnel v6
ip -n h1 link set wg1 mtu 1299
ip -n h2 link set wg2 mtu 1299
count h2 in exact6 ip6 length 1339 udp dport 50002
pings h1 10.9.0.2 -s 1271 -M do
expect "datagrams of exactly 1339 bytes over IPv6" 3 "$(counted h2 exact6)"
