#!/usr/bin/env bash
# Out of descriptors: a start says so; a running daemon has its clients wait, carries on, and misses no change of its link.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.bash"
need prlimit nc

two_hosts
say "at start, from too few for anything to too few for the last"
for limit in 5 6 8; do
  status=0
  on h1 prlimit --nofile=$limit timeout 5 "$TUNNEL_DAEMON" -f wg1 >"$WORK/said" 2>&1 || status=$?
  expect "status with $limit descriptors" 1 $status
  grep -qE "Too many open files|No file descriptors available" "$WORK/said" || fail "with $limit descriptors it says: $(cat "$WORK/said")"
  [[ -z $(ip -n h1 -br link show type tun) && ! -e /run/wireguard/wg1.sock ]] || fail "with $limit descriptors it left something"
done

tunnel v4
before_fault
say "every number below the limit is in use"
starve() { # IFACE [LEFT] : leaves it none, or so many
  local free=0
  while [[ -e /proc/${PID[$1]}/fd/$free ]]; do free=$((free + 1)); done
  prlimit --pid "${PID[$1]}" --nofile=$((free + ${2:-0})):
}
relieve() { prlimit --pid "${PID[$1]}" --nofile=1024:; } # IFACE
starve wg1
on h1 timeout 20 wg show wg1 >"$WORK/waits" 2>&1 &
client=$!
at_ease wg1 10 "a client waits" sleep 1
[[ -d /proc/$client && ! -s $WORK/waits ]] || fail "a client was answered without a descriptor"
pings h1 10.9.0.2
pings h2 10.9.0.1
relieve wg1
wait $client || fail "the client that waited was turned away: $(cat "$WORK/waits")"
say "the client that waited has its answer"
after_fault 2 "out of descriptors"

say "the link goes down and up meanwhile: that is seen, at the latest when there are descriptors again"
for left in 0 1; do
  starve wg1 $left
  ip -n h1 link set wg1 down
  at_ease wg1 10 "a link that went down, with $left descriptors left" sleep 1
  relieve wg1
  wait_for 5 "the port to be closed as the link is down" port_closed h1 50001
  starve wg1 $left
  ip -n h1 link set wg1 up
  at_ease wg1 10 "a link that came up, with $left descriptors left" sleep 1
  relieve wg1
  wait_for 5 "the port to be open as the link is up" listens_udp h1 50001
  address h1 wg1 fd09::1/64 # the kernel drops IPv6 addresses with the link
  after_fault 2 "a link that went down and up, with $left descriptors left"
done
! grep -q "has moved" "$SCENARIO_LOGS/wg1.log" || fail "the log says: $(grep -m 1 "has moved" "$SCENARIO_LOGS/wg1.log")"

say "the limit is lowered below the number of clients: some go, the daemon does not"
sockets() { find "/proc/${PID[wg1]}/fd" -lname 'socket:*' | wc -l; }
own=$(sockets)
limit=$(find "/proc/${PID[wg1]}/fd" -type l -printf '%f\n' | sort -n | tail -n 1)
limit=$((limit + 5)) # how many it has open by itself depends on the number of processors
for ((i = 0; i < limit + 20; i++)); do
  sleep 1000 | nc -U /run/wireguard/wg1.sock >/dev/null &
done
many() { (($(sockets) >= own + limit + 15)); } # the last client may have been among its own
wait_for 10 "$((limit + 20)) clients" many
prlimit --pid "${PID[wg1]}" --nofile=$limit:
few() { (($(sockets) < own + limit + 5)); }
on h1 timeout 20 wg show wg1 >/dev/null || true # wakes it
wait_for 5 "some of them to be closed" few
pings h1 10.9.0.2
relieve wg1
after_fault 2 "a limit below the number of clients"
on h1 timeout 20 wg show wg1 >/dev/null || fail "the daemon does not answer"
