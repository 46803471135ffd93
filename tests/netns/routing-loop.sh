#!/usr/bin/env bash
# A peer whose endpoint is routed into its own tunnel must not turn one packet into an endless stream.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
pings h1 10.9.0.2

on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.0.2/32,fd09::2/128,192.0.2.2/32
ip -n h1 route add 192.0.2.2/32 dev wg1
on h1 ping -n -q -c 20 -i 0.05 -W 1 10.9.0.2 || true
sleep 1
alive wg1 || fail "the daemon ended"

before=$(sent h1 wg1) ticks=$(cpu_ticks "${PID[wg1]}")
sleep 2
expect_at_most "bytes sent in two seconds after the last ping" 20000 $(($(sent h1 wg1) - before))
expect_at_most "CPU time in these two seconds, in 1/100 s" 20 $(($(cpu_ticks "${PID[wg1]}") - ticks))

ip -n h1 route del 192.0.2.2/32 dev wg1
wait_for 15 "the tunnel to work again" on h1 ping -n -q -c 1 -W 1 10.9.0.2
