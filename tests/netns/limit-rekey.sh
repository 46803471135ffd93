#!/usr/bin/env bash
# A key that replaces another: the old one is good until the first handshake of the new one, and not after.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/limits.bash"

two_hosts
tunnel v4
pings h2 10.9.0.1
limits h2 quota=100000000
key new
limits new replaces="$(public h2 | hex)" quota=100000000

say "the old key still is the client's, also for a new session"
renewed
pings h2 10.9.0.1
used=$(limit quota_used | head -n 1)

say "the new key"
on h2 wg set wg2 private-key "$WORK/new.key"
renewed
wait_for 5 "an answer" on h2 ping -n -q -c 1 -W 1 10.9.0.1
pings h1 10.9.0.2
expect "peers" "$(public new)" "$(on h1 wg show wg1 peers)"
expect "allowed IPs" "10.9.0.2/32 fd09::2/128" "$(on h1 wg show wg1 allowed-ips | cut -f 2)"
expect_at_least "bytes used" "$used" "$(limit quota_used)"
expect "what it replaces" "" "$(limit replaces)"

say "the old key again"
on h2 wg set wg2 private-key "$WORK/h2.key"
renewed
no_ping h2 10.9.0.1
on h2 wg set wg2 private-key "$WORK/new.key"
renewed
pings h2 10.9.0.1
