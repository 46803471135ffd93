#!/usr/bin/env bash
# timeout: 120
# Many clients of the UAPI socket at once, some of which stall: neither other clients nor packets wait for them.
source "$(dirname "$0")/lib.sh"
need nc

two_hosts
tunnel v4
socket=/run/wireguard/wg1.sock

say "clients that connect and say nothing, or half of something, or do not read the answer"
stalled=()
for i in {1..8}; do
  sleep 60 | nc -U $socket >/dev/null &
  stalled+=($!)
  { printf 'set=1\nprivate_key=00' && sleep 60; } | nc -U $socket >/dev/null &
  { printf 'set=1\npublic_key=%064d\n' "$i" && sleep 60; } | nc -U $socket >/dev/null &
done
{ for _ in {1..3000}; do printf 'get=1\n\n'; done && sleep 60; } | nc -U $socket | sleep 60 &
sleep 0.5

started=$(now_ms)
on h1 timeout 30 wg show wg1 >/dev/null || fail "wg show waits for a client that stalls"
on h1 timeout 30 wg set wg1 peer "$(public h2)" persistent-keepalive 21 || fail "wg set waits for a client that stalls"
# They stall for four times as long.
expect_at_most "milliseconds for a show and a set beside stalled clients" 15000 $(($(now_ms) - started))
expect "persistent keepalive" 21 "$(on h1 wg show wg1 persistent-keepalive | cut -f 2)"
pings h1 10.9.0.2
link_down h1 wg1
link_up h1 wg1
pings h1 10.9.0.2

say "many clients that do work"
jobs=()
for i in {1..20}; do
  (for j in {1..10}; do on h1 wg show wg1 dump >/dev/null && on h1 wg set wg1 peer "$(public h2)" persistent-keepalive $((i + j)); done) &
  jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job" || fail "one of 20 clients at once was turned away"; done
pings h1 10.9.0.2

say "several requests on one connection, each answered"
answers=$(for _ in {1..50}; do printf 'get=1\n\nset=1\n\n'; done | uapi wg1 | grep -c '^errno=0$' || true)
expect "answers" 100 "$answers"
