#!/usr/bin/env bash
# timeout: 60
# Packets sent before there is a session are staged: up to 128, then the oldest are dropped.
source "$(dirname "$0")/lib.sh"
need nc

two_hosts
tunnel v4
# The first packet arrives, every time.
for _ in {1..5}; do
  pings h1 10.9.0.2 -c 1 -W 2
  sleep 0.1 # initiations of one peer within 20 ms are dropped as a flood
  forget h1 wg1
done

# The other end cannot be reached at first. 200 numbered packets, then it can.
forget h1 wg1
block h2 in udp dport 50002
ip netns exec h2 nc -u -l 10.9.0.2 7000 >"$WORK/arrived" </dev/null &
wait_for 3 "nc -u -l on h2" listens_udp h2 7000
on h1 bash -c 'exec 3>/dev/udp/10.9.0.2/7000; for i in {1..200}; do echo "$i" >&3; done'
sleep 0.5
unblock h2
arrived() { (($(wc -l <"$WORK/arrived") >= 1)); }
wait_for 12 "the retry of the handshake and the staged packets" arrived
sleep 0.5
expect "staged packets" 128 "$(wc -l <"$WORK/arrived")"
expect "they are the newest ones, in order" "$(seq 73 200 | sha256sum)" "$(sha256sum <"$WORK/arrived")"

# Removing a peer, or giving up its handshake, drops the staged packets; a new endpoint gets them at once.
forget h1 wg1
on h1 wg set wg1 peer "$(public h2)" endpoint 192.0.2.99:50002
ip netns exec h1 ping -n -q -c 1 -W 10 10.9.0.2 >"$WORK/patient" 2>&1 &
patient=$!
sleep 1
on h1 wg set wg1 peer "$(public h2)" endpoint 192.0.2.2:50002
wait $patient || fail "a ping sent before the right endpoint was known: $(grep loss "$WORK/patient")"
