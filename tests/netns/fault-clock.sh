#!/usr/bin/env bash
# The wall clock set back an hour: a running end carries on; one that restarts is refused until its clock is right again.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.bash"
source "$(dirname "$0")/late-clock.bash"

two_hosts
key h1 h2
late 0
late_daemon() { daemon h1 wg1 "${by_late_clock[@]}" "$TUNNEL_DAEMON" -f; }
late_daemon
daemon h2 wg2
wire v4
before_fault

say "a running daemon whose clock is set back makes new sessions as before"
late 3600
expect_at_most "seconds since 1970 by h1's clock" $(($(date +%s) - 3000)) "$("${by_late_clock[@]}" date +%s)"
for _ in 1 2 3; do
  sleep 0.1 # initiations of one peer within 20 ms are dropped as a flood
  ip -n h1 link set wg1 down
  ip -n h1 link set wg1 up
  wait_for 5 "wg1 to open its port" listens_udp h1 50001
  pings h1 10.9.0.2
done
address h1 wg1 fd09::1/64 # the kernel drops IPv6 addresses with the link
after_fault 2 "set back while it runs"
expect_at_most "the last handshake by h1's clock" $(($(date +%s) - 3000)) "$(handshake_time h1 wg1)"
late 7200
on h1 "${by_late_clock[@]}" "$LINERATE" show wg1 >"$WORK/said"
grep -q "System clock wound backward" "$WORK/said" || fail "show does not tell of the clock: $(cat "$WORK/said")"
late 3600

say "restarted with a clock that is late, its handshakes are refused as replays"
on h1 wg showconf wg1 >"$WORK/wg1.conf"
restart() {
  stop_daemon wg1
  late_daemon
  on h1 wg setconf wg1 "$WORK/wg1.conf"
  wg_address h1 wg1 10.9.0.1/24 fd09::1/64
  wait_for 5 "wg1 to open its port" listens_udp h1 50001
}
late 7200
restart
no_ping h1 10.9.0.2
expect "latest handshake on h1" 0 "$(handshake_time h1 wg1)"
expect_at_least "handshakes that h2 refused as replays" 1 "$(stat_of wg2 drop_replayed)"
say "the other end, whose clock is right, can still begin"
ip -n h2 link set wg2 down
ip -n h2 link set wg2 up
wait_for 5 "wg2 to open its port" listens_udp h2 50002
pings h2 10.9.0.1
address h2 wg2 fd09::2/64

say "its clock is set right: the next handshake is accepted, without a restart"
late 7200
restart
no_ping h1 10.9.0.2
late 0
after_fault 10 "set right"
