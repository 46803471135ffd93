#!/usr/bin/env bash
# `linerate speed` over 60 ms each way: queues of seconds are found, and the load is judged by its own time.
# timeout: 150
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/speed.bash"
need tc
[[ -x $EXAMPLES/relay ]] || fail "there is no $EXAMPLES/relay (cargo build -p linerate-lab --example relay)"

two_hosts
# A relay on m delays, and each end takes it for the other; behind it a router, which has the queues.
host m r
cable h1 f1 m m1
cable m m2 r r1
cable r r2 h2 f2
address h1 f1 203.0.113.1/28
address m m1 203.0.113.2/28
address m m2 203.0.113.17/28
address r r1 203.0.113.18/28
address r r2 203.0.113.33/28
address h2 f2 203.0.113.34/28
forwarding r
ip -n m route add 203.0.113.32/28 via 203.0.113.18
ip -n h2 route add 203.0.113.16/28 via 203.0.113.33
# Which fills a queue; BBR keeps it short.
for at in h1 h2; do on "$at" sysctl -qw net.ipv4.tcp_congestion_control=reno; done
tunnel none
on h1 wg set wg1 peer "$(public h2)" endpoint 203.0.113.2:6000
ip netns exec m "$EXAMPLES/relay" 203.0.113.2:6000 203.0.113.34:50002 --delay 60 >"$SCENARIO_LOGS/relay.log" 2>&1 &
wait_for 5 "the relay" listens_udp m 6000
pings h1 10.9.0.2
responder h2 wg2

say "a short load"
measures 10.9.0.2 --seconds 2
holds "the round trip" '.atRest.median >= 120 and .atRest.requests >= 10'
for way in send receive; do
  # Half of it is for queues to fill; in the other half every 20 ms, however long the answers take.
  holds "$way: requests beside it" ".$way.underLoad.requests >= 10 and .$way.underLoad.least >= 120"
  # The rest of the connection's time, four round trips and more, is not in it.
  holds "$way: the machine there" ".$way.there.seconds - .$way.seconds | fabs < 1e-3"
done

say "a queue of seconds"
for end in r1 r2; do
  on r tc qdisc replace dev "$end" root tbf rate 2mbit burst 16k limit 8m 2>/dev/null || skip "this kernel has no tbf"
done
# What one load leaves in it takes longer than the next one's connection may.
measures 10.9.0.2 --seconds 8
for way in send receive; do
  holds "$way: round trips" ".$way.underLoad.requests >= 50 and .$way.underLoad.median > 480"
  holds "$way: the verdict" ".$way.bottleneck.says | startswith(\"bound by the link between the ends:\")"
done
