#!/usr/bin/env bash
# What a command under `linerate run` has sent still arrives when it has ended, as it does outside of a tunnel.
source "$(dirname "$0")/lib.sh"
need nc
source "$(dirname "$0")/run.bash"

say "a datagram of a command that ends before the first handshake does"
ip netns exec h2 nc -u -l -p 9999 >"$WORK/arrived" </dev/null &
receiver=$!
wait_for 5 "nc" listens_udp h2 9999
run work -- bash -c 'echo hello >/dev/udp/10.9.0.2/9999'
wait_for 10 "the datagram" grep -q hello "$WORK/arrived"
kill $receiver
nothing_left

say "the end of a connection, with what is in it"
ip netns exec h2 nc -l -p 9999 >"$WORK/arrived" </dev/null &
receiver=$!
wait_for 5 "nc" listens h2 9999
run work -- bash -c 'exec 3>/dev/tcp/10.9.0.2/9999; head -c 1000000 /dev/zero >&3'
# It ends when the connection does.
wait_for 10 "the end of the connection" bash -c "! kill -0 $receiver 2>/dev/null"
expect "bytes" 1000000 "$(stat -c %s "$WORK/arrived")"
nothing_left

say "a peer that is silent does not hold the daemon"
ip -n h2 link set wg2 down
run_status work -- bash -c 'echo hello >/dev/udp/10.9.0.2/9999'
expect "exit code" 0 "$STATUS"
nothing_left
