#!/usr/bin/env bash
# heavy: streams as fast as the machine
# timeout: 60
# 105 TCP streams at once: all make progress, the daemon's memory stays bounded, and pings are answered.
source "$(dirname "$0")/lib.sh"
need iperf3

two_hosts
tunnel v4
iperf h1 h2 10.9.0.2 -t 2
one=$RATE
iperf h1 h2 10.9.0.2 -t 3 -P 105
note "one stream: $one Mbit/s, 105 streams: $RATE Mbit/s"
expect_at_least "105 streams, Mbit/s" 1 "$RATE"
for end in wg1 wg2; do
  note "peak memory of $end: $(($(peak_rss_kb "${PID[$end]}") / 1024)) MB"
  expect_at_most "peak kilobytes of $end" 40960 "$(peak_rss_kb "${PID[$end]}")"
done
pings h1 10.9.0.2
