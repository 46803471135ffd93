#!/usr/bin/env bash
# timeout: 260
# Sessions are replaced after two minutes, without losing a packet, and end silently without traffic.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
pings h1 10.9.0.2
first=$(handshake_time h1 wg1)
count h1 out initiations udp dport 50002 udp length 156
count h1 out anything udp dport 50002

# Traffic in both directions for 133 seconds: the initiator rekeys at 120.
ip netns exec h1 ping -n -q -i 0.1 -c 1330 -W 3 10.9.0.2 >"$WORK/steady" 2>&1 || true
grep -q ' 0% packet loss' "$WORK/steady" || fail "1330 pings: expected 0% packet loss, saw $(grep loss "$WORK/steady")"
second=$(handshake_time h1 wg1)
expect_at_least "seconds between the two handshakes" 119 $((second - first))
expect_at_most "seconds between the two handshakes" 126 $((second - first))
expect "initiations in that time" 1 "$(counted h1 initiations)"

# Quiet: after the last ping nothing is owed but a keepalive 10 seconds after the last data, and another 10 seconds after
# that where two answers came at once (need_another_keepalive in the kernel's timers.c), as on a busy machine.
sleep 23
quiet=$(counted h1 anything)
sleep 30
expect "datagrams in 30 seconds of silence" 0 $(($(counted h1 anything) - quiet))

# The other end sends after the silence; the session is young enough, so no handshake is needed.
before=$(handshake_time h2 wg2)
pings h2 10.9.0.1
expect "time of the last handshake" "$before" "$(handshake_time h2 wg2)"
