#!/usr/bin/env bash
# timeout: 60
# At rest and without persistent keepalive the daemon is not woken at all.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
pings h1 10.9.0.2
# The last data is answered by a keepalive after 10 seconds at most; a new handshake would come after 15.
sleep 17
before=$(wakeups "${PID[wg1]}") before2=$(wakeups "${PID[wg2]}") ticks=$(cpu_ticks "${PID[wg1]}")
sleep 10
# Reading /proc does not wake the daemon; `wg show` would.
expect "context switches of all threads in 10 seconds, on h1" 0 $(($(wakeups "${PID[wg1]}") - before))
expect "context switches of all threads in 10 seconds, on h2" 0 $(($(wakeups "${PID[wg2]}") - before2))
expect "CPU time in 10 seconds, in 1/100 s" 0 $(($(cpu_ticks "${PID[wg1]}") - ticks))
pings h1 10.9.0.2
