#!/usr/bin/env bash
# timeout: 120
# A daemon that does not respond: `top`, `events` and `metrics` go on with the other tunnels, and say so of that one.
source "$(dirname "$0")/lib.sh"
need jq curl

two_hosts
tunnel v4
daemon h1 wg4
key four other
on h1 wg set wg4 private-key "$WORK/four.key" peer "$(public other)" allowed-ips 10.44.0.2/32
ip netns exec h1 "$LINERATE" events --json >"$WORK/events" 2>"$SCENARIO_LOGS/events.log" &
events=$!
ip netns exec h1 "$LINERATE" metrics --listen "unix:$WORK/metrics.sock" >"$SCENARIO_LOGS/metrics.log" 2>&1 &
metrics=$!
scrape() { curl -sS --max-time "$1" --unix-socket "$WORK/metrics.sock" http://localhost/metrics >"$WORK/scraped"; }
wait_for 10 "metrics to be served" eval 'scrape 5 && grep -q "wg4" "$WORK/scraped"'
happened() { jq -e -s "any(.[]; $1)" "$WORK/events" >/dev/null; } # CONDITION
handshakes() { jq -s 'map(select(.event == "handshake" and .tunnel == "wg1")) | length' "$WORK/events"; }
new_session() { forget h1 wg1 && forget h2 wg2 && on h1 ping -q -c 1 -W 2 10.9.0.2 >/dev/null; }
# It tells what comes after its first look, and looks at both tunnels then.
listens() { new_session && sleep 1 && (($(handshakes) >= 1)); }
wait_for 20 "the listener" listens
before=$(handshakes)

kill -STOP "${PID[wg4]}"
say "the other tunnel is seen all the same"
wait_for 5 "a new session" new_session
more_handshakes() { (($(handshakes) > before)); }
wait_for 8 "an event of the other tunnel" more_handshakes
# Each of the three updates would take as long.
timeout 25 nsenter --net=/run/netns/h1 "$LINERATE" top --json -n 3 -d 0.5 >"$WORK/top" || fail "top ended with $?"
expect "updates" 3 "$(wc -l <"$WORK/top")"
sent() { jq -s ".[$1].tunnels[] | select(.interface == \"wg1\") | .peers[0].sent" "$WORK/top"; }
expect_at_least "bytes that wg1 has sent" 100 "$(sent 2)"
expect "what is known of wg4" '"unknown"' "$(jq -s '.[2].tunnels[] | select(.interface == "wg4") | .implementation' "$WORK/top")"
scrape 9 || fail "a scrape takes longer than Prometheus waits"
grep -q 'wg1' "$WORK/scraped" || fail "the scrape has nothing of wg1: $(head -n 5 "$WORK/scraped")"
wait_for 40 "an event of the frozen one" happened '.event == "unreadable" and .tunnel == "wg4"'

say "and it goes on when it does"
kill -CONT "${PID[wg4]}"
key new
on h1 wg set wg4 peer "$(public new)" allowed-ips 10.44.0.3/32
wait_for 25 "wg4 to be read again" eval 'nsenter --net=/run/netns/h1 "$LINERATE" top --json -n 1 | grep -qF "$(public new)"'
wait_for 25 "its peer to be told of" happened ".event == \"added\" and .publicKey == \"$(public new)\""
kill "$events" "$metrics"
