#!/usr/bin/env bash
# The port is another program's when the link comes up: the daemon says so once, and has the port as soon as it is free.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.bash"
need nc

LOG_LEVEL=info # as in the service
two_hosts
tunnel v4
before_fault
ip -n h1 link set wg1 down
wait_for 5 "the port to be free" port_closed h1 50001
ip netns exec h1 nc -u -l 0.0.0.0 50001 >/dev/null </dev/null &
other=$!
wait_for 5 "another program on port 50001" listens_udp h1 50001
ip -n h1 link set wg1 up
refused() { grep -q "ERROR .*50001" "$SCENARIO_LOGS/wg1.log"; }
wait_for 5 "a word in the log" refused
expect "listening port" 50001 "$(on h1 wg show wg1 listen-port)"
status_says() { grep -q "$1" < <(on h1 "$LINERATE" status wg1); }
status_says "its UDP port is in use by another program" || fail "status says: $(on h1 "$LINERATE" status wg1)"
expect_failure "status --check without a port" on h1 "$LINERATE" status wg1 --check
at_ease wg1 10 "without a port" no_ping h1 10.9.0.2
expect_failure "the same port, while it is taken" on h1 wg set wg1 listen-port 50001
# With musl the address is "in use".
expect "what the log says, once" "ERROR cannot listen on UDP port 50001: Address already in use (os error 98); retrying every second" "$(grep -o "ERROR .*50001.*" "$SCENARIO_LOGS/wg1.log" | sed 's/Address in use/Address already in use/')"

say "another port"
on h1 wg set wg1 listen-port 50011
pings h1 10.9.0.2

say "the first one again, which becomes free at last"
ip -n h1 link set wg1 down
wait_for 5 "the link to be down" eval "! listens_udp h1 50011"
on h1 wg set wg1 listen-port 50001
ip -n h1 link set wg1 up
no_ping h1 10.9.0.2
kill $other
wait $other 2>/dev/null || true
wait_for 5 "the daemon to have the port" listens_udp h1 50001
address h1 wg1 fd09::1/64 # the kernel drops IPv6 addresses with the link
after_fault 2 "the port taken"
! status_says "in use" || fail "status says: $(on h1 "$LINERATE" status wg1)"
