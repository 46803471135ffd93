#!/usr/bin/env bash
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
woken() { # IFACE work|empty : wake-ups of all threads that count theirs, which are the engine's
  printf 'stats=1\n\n' | uapi "$1" | awk -F= -v kind="_$2\$" '/^wakeups_/ && $1 ~ kind { n += $2 } END { print n + 0 }'
}
# What belongs together is read between two keepalives: again if one went meanwhile.
look() {
  local first=
  until [[ $first == "$(counted h1 keepalives)" ]]; do
    first=$(counted h1 keepalives)
    worked=$(woken wg1 work) worked2=$(woken wg2 work) empty=$(($(woken wg1 empty) + $(woken wg2 empty)))
  done
  sent=$first
}
sleep 1
look
before=$sent before_worked=$worked before_worked2=$worked2 before_empty=$empty
switches=$(wakeups "${PID[wg1]}")
sleep 10
look
sent=$((sent - before))
expect "wake-ups of the sender's engine, one for each keepalive" "$sent" $((worked - before_worked))
expect "wake-ups of the receiver's engine, one for each keepalive" "$sent" $((worked2 - before_worked2))
expect "wake-ups for nothing, at both ends" 0 $((empty - before_empty))
expect_at_least "keepalives in 10 seconds" 4 "$sent"
expect_at_most "keepalives in 10 seconds" 6 "$sent"
# A wake-up by the timer, what the send costs, and who asks for the counters; twice that is room for a preemption.
expect_at_most "context switches in these 10 seconds" 32 $(($(wakeups "${PID[wg1]}") - switches))

# Any packet serves as well: while data flows, no keepalive. The first one starts the interval anew.
pings h1 10.9.0.2 -c 1
before=$(counted h1 keepalives)
on h1 ping -n -q -i 0.5 -w 6 10.9.0.2 >/dev/null
expect "keepalives while data flows" 0 $(($(counted h1 keepalives) - before))

on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 0
sleep 0.5
before=$(counted h1 keepalives)
sleep 5
expect "keepalives after it is switched off" 0 $(($(counted h1 keepalives) - before))
