#!/usr/bin/env bash
# Handshakes ask the network for priority (DSCP AF41, TOS 0x88); data does not.
source "$(dirname "$0")/lib.sh"

two_hosts
# The length of UDP counts its own 8 bytes: an initiation is 148 + 8, a response 92 + 8.
for version in 4 6; do
  tunnel v$version
  dscp=("ip${version#4}" dscp)
  count h2 in initiations$version udp dport 50002 udp length 156 "${dscp[@]}" af41
  count h1 in responses$version udp dport 50001 udp length 100 "${dscp[@]}" af41
  count h2 in data$version udp dport 50002 udp length '!=' 156 "${dscp[@]}" '!=' cs0
  pings h1 10.9.0.2
  expect "IPv$version: initiations and responses with AF41" "1 1" "$(counted h2 initiations$version) $(counted h1 responses$version)"
  expect "IPv$version: data with a DSCP" 0 "$(counted h2 data$version)"
  stop_daemon wg1 && stop_daemon wg2
done
