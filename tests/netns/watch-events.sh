#!/usr/bin/env bash
# timeout: 150
# Each event of `linerate events`, made by real daemons, and a daemon that sees nothing of it when nobody listens.
source "$(dirname "$0")/lib.sh"
need jq

two_hosts
tunnel v4
ip netns exec h1 "$LINERATE" events wg1 --json >"$WORK/events" 2>"$SCENARIO_LOGS/events.log" &
events=$!
happened() { jq -e --argjson seen "$seen" -s ".[\$seen:] | any(.[]; $1)" "$WORK/events" >/dev/null; } # CONDITION
seen=0
told() { # SECONDS CONDITION : and what comes after it is new
  wait_for "$1" "an event with $2" happened "$2"
  say "event: $(jq -c -s ".[$seen:][] | select($2)" "$WORK/events" | head -n 1)"
  seen=$(jq -s length "$WORK/events")
}

# Until it listens, once more each time.
handshakes() {
  happened '.event == "handshake"' || { forget h1 wg1 && on h1 ping -n -q -c 1 -W 1 10.9.0.2 && sleep 1 && false; }
}
wait_for 60 "a handshake" handshakes
told 30 '.event == "handshake" and .tunnel == "wg1" and .endpoint == "192.0.2.2:50002"'

say "roaming"
ip -n h2 addr del 192.0.2.2/24 dev e2
address h2 e2 192.0.2.22/24
pings h2 10.9.0.1
told 30 '.event == "roam" and .from == "192.0.2.2:50002" and .to == "192.0.2.22:50002"'

say "silent, and back"
block h2 in udp dport 50002
on h1 ping -n -q -i 1 -w 24 10.9.0.2 >/dev/null || true
told 30 '.event == "silent" and (.lastReceived | startswith("20"))'
unblock h2
on h1 ping -n -q -c 1 -w 20 10.9.0.2 >/dev/null || fail "the tunnel does not work again"
told 30 '.event == "back" and .seconds >= 20'

say "limits"
limits() { { printf 'set=1\npublic_key=%s\n' "$(public h2 | hex)" && printf '%s\n' "$@" && echo; } | uapi wg1 >/dev/null; }
limits quota=1
on h1 ping -n -q -c 2 -w 2 10.9.0.2 >/dev/null || true
told 30 '.event == "quota"'
limits quota=0
told 30 '.event == "letIn"'
limits expires=$(($(date +%s) + 2))
told 30 '.event == "expired"'
limits expires=0
told 30 '.event == "letIn"'

say "peers that come and go"
key other
on h1 wg set wg1 peer "$(public other)" allowed-ips 10.9.0.9/32
told 30 ".event == \"added\" and .publicKey == \"$(public other)\""
on h1 wg set wg1 peer "$(public other)" remove
told 30 '.event == "removed"'

say "the tunnel goes and comes"
stop_daemon wg1
told 30 '.event == "down"'
daemon h1 wg1
told 30 '.event == "up"'

say "the daemon is replaced between two polls"
kill -STOP $events
stop_daemon wg1
daemon h1 wg1
kill -CONT $events
told 30 '.event == "restarted"'

say "it ends when it is asked to, and when nobody reads"
kill $events
status=0 && wait $events || status=$?
expect "its exit status" 0 $status

say "at rest, and with nobody listening, the daemon does not wake"
sleep 2
before=$(wakeups "${PID[wg1]}")
sleep 3
expect_at_most "wake-ups in three seconds" 2 $(($(wakeups "${PID[wg1]}") - before))
