#!/usr/bin/env bash
# A peer's end: it is cut off, and neither a restart nor a clock that is set back lets it in again.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/limits.bash"
source "$(dirname "$0")/late-clock.bash"

two_hosts
tunnel v4
pings h2 10.9.0.1

say "while packets flow"
end=$(($(epoch) + 3))
limits h2 expires=$end
ip netns exec h2 ping -n -D -i 0.02 10.9.0.1 >"$WORK/flow" &
flow=$!
wait_for 10 "the peer to expire" is_suspended expired
# Within the session that it has.
no_ping h2 10.9.0.1
kill -INT "$flow"
wait "$flow" || true
last=$(sed -n 's/^\[\([0-9.]*\)\] .*ttl=.*/\1/p' "$WORK/flow" | tail -n 1)
expect_at_least "the last answer, in seconds after the end" -1 "$(bc <<<"$last - $end")"
note "the last answer: $(bc <<<"$last - $end") s after the end" # within 1 s on a machine that is not overloaded
no_ping h1 10.9.0.2
expect_at_least "packets to it" 1 "$(stat_of wg1 drop_suspended)"
expect "peers that are not let in" 1 "$(stat_of wg1 peers_suspended)"
renewed
no_ping h2 10.9.0.1
expect_at_least "its handshakes" 1 "$(stat_of wg1 drop_suspended_initiation)"

say "nothing wakes the daemon for it"
ip -n h2 link set wg2 down
sleep 1
before=$(wakeups "${PID[wg1]}")
sleep 5
expect "context switches of all threads in 5 seconds" 0 $(($(wakeups "${PID[wg1]}") - before))

say "killed and started again with a clock that is an hour late"
kill_server
late 3600
server "${by_late_clock[@]}" "$TUNNEL_DAEMON" -f
limits h2 expires=$end
expect "why" expired "$(limit suspended)"
renewed
no_ping h2 10.9.0.1
say "a running daemon whose clock is set back further"
late 7200
limits h2 expires=$end
no_ping h2 10.9.0.1

say "renewed"
limits h2 expires=$((end + 1000000))
expect "why" "" "$(limit suspended)"
renewed
pings h2 10.9.0.1

say "an end that is still to come stands where it was when the clock is set back"
late 0
limits h2 expires=$(($(epoch) + 3))
late 14400
wait_for 5 "the peer to expire" is_suspended expired
