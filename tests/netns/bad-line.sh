#!/usr/bin/env bash
# timeout: 120
# Loss, reordering, delay and duplication at once, by a relay: a file arrives whole, in both directions.
source "$(dirname "$0")/lib.sh"
need nc
[[ -x $EXAMPLES/relay ]] || fail "there is no $EXAMPLES/relay (cargo build -p linerate-lab --example relay)"

two_hosts
host m # the relay lives in between, and each end takes it for the other
cable h1 f1 m m1
cable m m2 h2 f2
address h1 f1 203.0.113.1/28
address m m1 203.0.113.2/28
address m m2 203.0.113.17/28
address h2 f2 203.0.113.18/28
tunnel none
on h1 wg set wg1 peer "$(public h2)" endpoint 203.0.113.2:6000

relay() { # OPTION... : a relay on m from port 6000 to h2; ends the one before
  [[ -z ${RELAY:-} ]] || { kill "$RELAY" && wait "$RELAY" 2>/dev/null || true; }
  ip netns exec m "$EXAMPLES/relay" 203.0.113.2:6000 203.0.113.18:50002 --seed 7 "$@" >>"$SCENARIO_LOGS/relay.log" 2>&1 &
  RELAY=$!
  wait_for 5 "the relay" listens_udp m 6000
}
head -c 8000000 /dev/urandom >"$WORK/file"

relay
pings h1 10.9.0.2
send_file h1 h2 10.9.0.2 "$WORK/file" 30

say "duplicates: each is dropped by the replay window, none comes out twice"
relay --duplicate 0.5
pings h1 10.9.0.2
on h1 ping -n -c 100 -i 0.01 -W 2 10.9.0.2 >"$WORK/ping" || true
grep -q 'DUP!' "$WORK/ping" && fail "a ping was answered twice"
grep -q '+[0-9]* duplicates' "$WORK/ping" && fail "duplicates came out of the tunnel: $(grep loss "$WORK/ping")"
expect "lost pings" 100 "$(awk '/received/ { print $4 }' "$WORK/ping")"
send_file h1 h2 10.9.0.2 "$WORK/file" 30

say "reordering: nothing is lost by it"
relay --reorder 0.1 --delay 2 --jitter 1
on h1 ping -n -q -c 200 -i 0.005 -W 2 10.9.0.2 >"$WORK/ping" || true
grep -q ' 0% packet loss' "$WORK/ping" || fail "pings over a reordering line: $(grep loss "$WORK/ping")"
send_file h1 h2 10.9.0.2 "$WORK/file" 30

say "all of it at once"
relay --loss 0.01 --duplicate 0.02 --reorder 0.02 --delay 3 --jitter 1
head -c 3000000 /dev/urandom >"$WORK/file"
send_file h1 h2 10.9.0.2 "$WORK/file" 40
send_file h2 h1 fd09::1 "$WORK/file" 40
