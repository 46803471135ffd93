#!/usr/bin/env bash
# An interface cannot be its own peer: such a peer is passed over, and a private key that makes one removes it.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
on h1 wg set wg1 peer "$(public h1)" allowed-ips 10.9.0.99/32
expect "peers of h1" "$(public h2)" "$(on h1 wg show wg1 peers)"

key later
on h1 wg set wg1 peer "$(public later)" allowed-ips 10.9.0.98/32
expect "number of peers of h1" 2 "$(on h1 wg show wg1 peers | wc -l)"
on h1 wg set wg1 private-key "$WORK/later.key"
expect "peers of h1 after it took a peer's key" "$(public h2)" "$(on h1 wg show wg1 peers)"

on h1 wg set wg1 private-key "$WORK/h1.key"
pings h1 10.9.0.2
