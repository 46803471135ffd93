#!/usr/bin/env bash
# Uploads that fill a link of 100 Mbit/s keep the shortest ping below 60 ms, and do not stop a download.
# timeout: 90
source "$(dirname "$0")/lib.sh"
need tc iperf3 jq

LOG_LEVEL=info # as users have it
two_hosts
tunnel v4
# A queue below the sockets that is never full: what waits is in the sockets' send buffers, and above them.
for end in 1 2; do
  on "h$end" tc qdisc replace dev "e$end" root tbf rate 100mbit burst 64k limit 64m 2>/dev/null || skip "this kernel has no tbf"
done
pings h1 10.9.0.2

# Loads the link for so long that the queue has settled, and pings for three seconds. Leaves the least of the round
# trips in $LEAST: the queue under this ping, however busy the machine is. CUBIC fills any queue; BBR would not.
# What arrived each way in Mbit/s: $UP, $DOWN.
under() { # WHAT IPERF3-OPTION...
  local what=$1 server load
  shift
  ip netns exec h2 iperf3 -s -1 -p 5201 >"$SCENARIO_LOGS/iperf-server.log" 2>&1 &
  server=$!
  wait_for 5 "iperf3 -s on h2" listens h2 5201
  ip netns exec h1 timeout 40 iperf3 -c 10.9.0.2 -p 5201 -t 7 -C cubic -J "$@" >"$WORK/load" 2>&1 &
  load=$!
  sleep 3
  on h1 ping -n -i 0.1 -w 3 10.9.0.2 >"$WORK/ping" 2>&1 || true
  wait "$load" || fail "$what: iperf3: $(tail -n 3 "$WORK/load")"
  wait "$server" || true
  UP=$(arrived true) DOWN=$(arrived false)
  LEAST=$(awk -F'[/ ]' '/^rtt/ { print $7 }' "$WORK/ping")
  [[ $LEAST ]] || fail "$what: no ping came back"
  note "$what: $UP Mbit/s up, $DOWN down, ping $(awk -F'[/ ]' '/^rtt/ { print $7 " to " $9 ", mean " $8 }' "$WORK/ping") ms"
}
arrived() { # true|false : by what h1 sent, or by what it received
  jq "[.end.streams[].receiver | select(.sender == $1) | .bits_per_second] | add // 0 | . / 1e6 | round" "$WORK/load"
}

under "one upload"
expect_at_most "the least round trip in ms" 60 "$LEAST"
under "four uploads" -P 4
expect_at_most "the least round trip in ms" 60 "$LEAST"
under "one stream each way" --bidir
expect_at_most "the least round trip in ms" 60 "$LEAST"
expect_at_least "the download in Mbit/s" 1 "$DOWN"
