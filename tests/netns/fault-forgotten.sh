#!/usr/bin/env bash
# timeout: 60
# The end that answers is killed and does not know where the other is: that one notices within 20 s, if it sends at all.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.bash"

# It starts a new handshake when it had no answer for KEEPALIVE_TIMEOUT + REKEY_TIMEOUT, 15 s (paper, section 6.2), after
# up to a third of a second (REKEY_TIMEOUT_JITTER_MAX in the kernel's timers.c).
two_hosts
tunnel none
on h1 wg set wg1 peer "$(public h2)" endpoint 192.0.2.2:50002
pings h1 10.9.0.2
kill -KILL "${PID[wg2]}"
wait_for 5 "the killed daemon to be gone" gone wg2
expect_failure "wg show of a killed daemon" on h2 wg show wg2 # and with that the dead socket is gone
daemon h2 wg2
on h2 wg set wg2 listen-port 50002 private-key "$WORK/h2.key" peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128
wg_address h2 wg2 10.9.0.2/24 fd09::2/64
begun=$(now_ms)
wait_for 20 "traffic" carries
note "a ping $(($(now_ms) - begun)) ms after the restart"
pings h1 10.9.0.2
pings h2 10.9.0.1
pings h1 fd09::2
