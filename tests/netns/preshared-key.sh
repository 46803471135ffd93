#!/usr/bin/env bash
# timeout: 60
# With the same preshared key on both ends the tunnel works, with different ones it does not.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
preshared one
preshared other

on h1 wg set wg1 peer "$(public h2)" preshared-key "$WORK/one.psk"
on h2 wg set wg2 peer "$(public h1)" preshared-key "$WORK/one.psk"
pings h1 10.9.0.2
expect "preshared key on h1" "$(cat "$WORK/one.psk")" "$(on h1 wg show wg1 preshared-keys | cut -f 2)"

# A change does not tear the session that is up; it counts from the next handshake on.
on h1 wg set wg1 peer "$(public h2)" preshared-key "$WORK/other.psk"
pings h1 10.9.0.2
forget h1 wg1
no_ping h1 10.9.0.2
on h2 wg set wg2 peer "$(public h1)" preshared-key "$WORK/other.psk"
wait_for 15 "the next handshake" on h1 ping -n -q -c 1 -W 1 10.9.0.2

# Without.
on h1 wg set wg1 peer "$(public h2)" preshared-key /dev/null
expect "preshared key on h1" "(none)" "$(on h1 wg show wg1 preshared-keys | cut -f 2)"
forget h1 wg1
no_ping h1 10.9.0.2
on h2 wg set wg2 peer "$(public h1)" preshared-key /dev/null
wait_for 15 "the next handshake" on h1 ping -n -q -c 1 -W 1 10.9.0.2
