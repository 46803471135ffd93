#!/usr/bin/env bash
# background: mostly waits
# timeout: 60
# With a persistent keepalive one datagram goes out per interval, at once when it is switched on, and wake-ups stay few.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
count h1 out initiations udp dport 50002 udp length 156
on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 2
initiated() { (($(counted h1 initiations) == 1)); }
wait_for 2 "a handshake as soon as it is switched on" initiated
shaken() { (($(handshake_time h1 wg1) > 0)); }
wait_for 2 "the handshake" shaken

count h1 out keepalives udp dport 50002 udp length 40
sleep 1
before=$(counted h1 keepalives) wakeups=$(wakeups "${PID[wg1]}")
sleep 10
expect_at_least "keepalives in 10 seconds" 4 $(($(counted h1 keepalives) - before))
expect_at_most "keepalives in 10 seconds" 6 $(($(counted h1 keepalives) - before))
# A wake-up by the timer, and what the send costs; twice that is room for a preemption.
expect_at_most "context switches in these 10 seconds" 24 $(($(wakeups "${PID[wg1]}") - wakeups))

# Any packet serves as well: while data flows, no keepalive.
before=$(counted h1 keepalives)
on h1 ping -n -q -i 0.5 -w 6 10.9.0.2 >/dev/null
expect "keepalives while data flows" 0 $(($(counted h1 keepalives) - before))

on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 0
sleep 0.5
before=$(counted h1 keepalives)
sleep 5
expect "keepalives after it is switched off" 0 $(($(counted h1 keepalives) - before))
