#!/usr/bin/env bash
# A new private key while the tunnel is up: the next packet makes a handshake at once, not after five seconds.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
pings h1 10.9.0.2

key new
on h1 wg set wg1 private-key "$WORK/new.key"
on h2 wg set wg2 peer "$(public h1)" remove
on h2 wg set wg2 peer "$(public new)" allowed-ips 10.9.0.1/32,fd09::1/128
pings h1 10.9.0.2 -W 2
expect "public key of h1" "$(public new)" "$(on h1 wg show wg1 public-key)"
expect_at_least "handshake with the new key" 1 "$(handshake_time h2 wg2)"

# And back, twice in a row, with the other side speaking first.
on h1 wg set wg1 private-key "$WORK/h1.key"
on h2 wg set wg2 peer "$(public new)" remove peer "$(public h1)" endpoint 192.0.2.1:50001 allowed-ips 10.9.0.1/32,fd09::1/128
pings h2 10.9.0.1 -W 2

# Without a private key nothing goes through; the peer stays configured.
on h1 wg set wg1 private-key /dev/null
no_ping h1 10.9.0.2
expect "private key of h1" "(none)" "$(on h1 wg show wg1 private-key)"
expect "peers of h1" "$(public h2)" "$(on h1 wg show wg1 peers)"
on h1 wg set wg1 private-key "$WORK/h1.key"
pings h1 10.9.0.2 -W 2
