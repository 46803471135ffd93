#!/usr/bin/env bash
# timeout: 150
# Both ends initiate at the same moment: their initiations cross, and both get through without a retry.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
# A slow line, so that they certainly cross: a datagram of 190 bytes takes 190 ms.
for end in h1/e1 h2/e2; do
  tc -n "${end%/*}" qdisc add dev "${end#*/}" root tbf rate 8kbit burst 2000 limit 20000 || skip "this kernel has no tbf"
  # The bucket is full at first: empty it.
done
# An end whose initiation did not get through, or was not answered, sends another one after five seconds.
initiations() { # HOST DEVICE : by their length, and that of the header of UDP
  count "$1" out initiations oifname "$2" udp length 156
}
one_round() { # 0 if both ends have sent one initiation and have got an answer
  stop_daemon wg1 && stop_daemon wg2 && tunnel v4
  on h1 ping -q -c 1 -s 1400 -W 0.1 192.0.2.2 >/dev/null || true
  on h2 ping -q -c 1 -s 1400 -W 0.1 192.0.2.1 >/dev/null || true
  sleep 0.2
  initiations h1 e1
  initiations h2 e2
  started=$(now_ms)
  ip netns exec h1 ping -n -q -c 1 -s 0 -W 10 10.9.0.2 >"$WORK/one" 2>&1 &
  one=$!
  ip netns exec h2 ping -n -q -c 1 -s 0 -W 10 10.9.0.1 >"$WORK/two" 2>&1 &
  two=$!
  wait $one || fail "h1 got no answer: $(grep loss "$WORK/one")"
  wait $two || fail "h2 got no answer: $(grep loss "$WORK/two")"
  sent="$(counted h1 initiations) and $(counted h2 initiations)"
  note "both had an answer after $(($(now_ms) - started)) ms, with $sent initiations"
  unblock h1
  unblock h2
  [[ $sent == "1 and 1" ]]
}
for round in 1 2 3; do
  say "round $round: new daemons, both ping"
  # On a machine that stands still for seconds they may not cross, or be sent again: that says nothing.
  crossed=
  for _ in {1..5}; do
    one_round && crossed=1 && break
  done
  [[ $crossed ]] || fail "initiations that cross do not both get through: expected 1 and 1, saw $sent"
done
