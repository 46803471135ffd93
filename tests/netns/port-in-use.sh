#!/usr/bin/env bash
# A port that someone else holds is refused by number, and the sockets that were open stay open.
source "$(dirname "$0")/lib.sh"
need nc

two_hosts
tunnel v4
pings h1 10.9.0.2
ip netns exec h1 nc -u -l 0.0.0.0 51999 >/dev/null </dev/null &
wait_for 3 "another program on port 51999" listens_udp h1 51999

if on h1 wg set wg1 listen-port 51999 2>"$WORK/refusal"; then fail "port 51999 was accepted, though in use"; fi
expect "what wg says" "Unable to modify interface: Address already in use" "$(cat "$WORK/refusal")"
expect "port after the refusal" 50001 "$(on h1 wg show wg1 listen-port)"
pings h1 10.9.0.2
pings h2 10.9.0.1
grep -q 51999 "$SCENARIO_LOGS/wg1.log" || fail "the daemon's log does not name the port 51999"
expect "what the socket answers" errno=-98 "$(printf 'set=1\nlisten_port=51999\n\n' | on h1 timeout 5 nc -NU /run/wireguard/wg1.sock | tr -d '\n')"

# Refused as a whole: the rest of the request does not happen either.
expect_failure "a port in use together with a new peer" on h1 wg set wg1 listen-port 51999 peer "$(wg genkey | wg pubkey)" allowed-ips 10.9.0.9/32
expect "peers of h1" "$(public h2)" "$(on h1 wg show wg1 peers)"

# The same for a port that is taken over IPv6 only, and for another tunnel's.
ip netns exec h1 nc -6 -u -l ::1 51998 >/dev/null </dev/null &
wait_for 3 "another program on port 51998" listens_udp h1 51998
expect_failure "a port in use over IPv6" on h1 wg set wg1 listen-port 51998
daemon h1 wg3
ip -n h1 link set wg3 up
on h1 wg set wg3 listen-port 50003
expect_failure "the port of another tunnel" on h1 wg set wg1 listen-port 50003
pings h1 10.9.0.2

# A free one, and any.
on h1 wg set wg1 listen-port 51997
expect "port" 51997 "$(on h1 wg show wg1 listen-port)"
pings h1 10.9.0.2
on h1 wg set wg1 listen-port 0
expect_at_least "a port of the daemon's choice" 1024 "$(on h1 wg show wg1 listen-port)"
pings h1 10.9.0.2
