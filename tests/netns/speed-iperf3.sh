#!/usr/bin/env bash
# `linerate speed` where no responder answers: what to run at the other end, and the measurement with iperf3.
# timeout: 150
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/speed.bash"
need iperf3

two_hosts
tunnel v4
of_h2=$(public h2)
pings h1 10.9.0.2

speed 10.9.0.2
expect "status where nobody answers" 1 "$STATUS"
says "nobody answers at 10\.9\.0\.2: no responder on port 5282 \(nobody listens\), and no iperf3 \(.*refused\)"
says "at the other end run .sudo linerate speed --listen IFACE., .* or .iperf3 -s -B 10\.9\.0\.2., then this again"
block h2 in meta iifname wg2 tcp dport 5282
speed 10.9.0.2
expect "status behind a firewall" 1 "$STATUS"
says "no responder on port 5282 \(no connection: .*\), .*; a firewall may drop it, too: .linerate doctor wg1."
unblock h2
speed nobody
expect "status for a peer that is not there" 1 "$STATUS"
says "no tunnel has the peer nobody"
speed
expect "status without a peer" 1 "$STATUS"
says "PEER"

serve() {
  ip netns exec h2 iperf3 -s -B 10.9.0.2 >>"$SCENARIO_LOGS/iperf-server.log" 2>&1 &
  wait_for 5 "iperf3 -s on h2" listens h2 5201
}
is_not_served() { ! listens h2 5201; }
serve
speed "$of_h2" --seconds 1
expect "status with iperf3" 0 "$STATUS"
says "answered by iperf3$"
says "^processors there +- +-$"
measures 10.9.0.2 --seconds 1
for way in send receive; do
  holds "$way: figures" ".$way.megabitsPerSecond > 0 and .$way.retransmitted != null and .$way.lost != null"
  holds "$way: this machine alone" "(.$way.here.threads | length > 0) and .$way.there == null"
done
holds "who answered" '.by == "iperf3" and .mtu.passes == 1420'

say "a server that is away for a moment after each measurement"
pkill -x iperf3
wait_for 5 "the server to end" is_not_served
(while :; do ip netns exec h2 iperf3 -s -1 -B 10.9.0.2 && sleep 0.3; done) >>"$SCENARIO_LOGS/iperf-server.log" 2>&1 &
restarting=$!
wait_for 5 "iperf3 -s -1 on h2" listens h2 5201
measures 10.9.0.2 --seconds 1
kill "$restarting" && pkill -x iperf3 || true
wait_for 5 "the server to end" is_not_served
serve
holds "figures" ".send.lost != null and .receive.lost != null"

say "a signal"
nsenter --net=/run/netns/h1 "$LINERATE" speed 10.9.0.2 --seconds 8 >"$WORK/stopped" 2>&1 &
stopped=$!
is_loading() {
  load=$(pgrep -P "$stopped" -x iperf3 || true)
  [[ $load ]] && grep -zq '^8$' "/proc/$load/cmdline"
}
wait_for 20 "its load" is_loading
kill "$stopped"
STATUS=0
wait "$stopped" || STATUS=$?
expect "status after a signal" 1 "$STATUS"
grep -q "interrupted$" "$WORK/stopped" || fail "it does not say that it was interrupted: $(cat "$WORK/stopped")"
[[ ! -d /proc/$load ]] || fail "iperf3 goes on"

# Our responder comes first.
responder h2 wg2
measures 10.9.0.2 --seconds 1
holds "who answered" '.by == "linerate"'
