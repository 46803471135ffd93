#!/usr/bin/env bash
# Handshakes ask the network for priority (DSCP AF41, TOS 0x88); data does not.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
# The length of UDP counts its own 8 bytes: an initiation is 148 + 8, a response 92 + 8.
count h2 in initiations udp dport 50002 udp length 156 ip dscp af41
count h1 in responses udp dport 50001 udp length 100 ip dscp af41
count h2 in data udp dport 50002 udp length '!=' 156 ip dscp '!=' cs0
pings h1 10.9.0.2
expect "initiations and responses with AF41" "1 1" "$(counted h2 initiations) $(counted h1 responses)"
expect "data with a DSCP" 0 "$(counted h2 data)"

stop_daemon wg1 && stop_daemon wg2
tunnel v6
count h2 in initiations6 udp dport 50002 udp length 156 ip6 dscp af41
count h1 in responses6 udp dport 50001 udp length 100 ip6 dscp af41
count h2 in data6 udp dport 50002 udp length '!=' 156 ip6 dscp '!=' cs0
pings h1 10.9.0.2
expect "initiations and responses with AF41 over IPv6" "1 1" "$(counted h2 initiations6) $(counted h1 responses6)"
expect "data with a DSCP over IPv6" 0 "$(counted h2 data6)"
