#!/usr/bin/env bash
# heavy: streams as fast as the machine
# timeout: 120
# Many workers, queues and sockets: with helpers at every batch, no TCP segment and no datagram arrives out of order.
source "$(dirname "$0")/lib.sh"
need iperf3
need nstat

joined() { on "$1" "$LINERATE" show "$2" --stats | awk '/wakeups helpers work/ { print $NF }'; } # HOST IFACE
unordered() { on "$1" nstat -asz TcpExtTCPOFOQueue | awk '/OFOQueue/ { print $2 }'; }               # HOST
queues() { # HOST IFACE
  ip -n "$1" -d link show "$2" | awk '/tun type/ { n = 1; for (i = 1; i < NF; i++) if ($i == "numqueues") n = $(i + 1); print n }'
}
sockets() { on "$1" ss -Hlun "sport = :$2" | wc -l; } # HOST PORT : of both families

# As on four cores: two queues, and two sockets for each family.
export LINERATE_HELPERS=always
two_hosts
tunnel v4
# Below capacity, so that anything out of order was reordered, not lost.
before=$(joined h1 wg1)
iperf h1 h2 10.9.0.2 -b 1G -t 4
expect "TCP segments out of order on h2" 0 "$(unordered h2)"
iperf h2 h1 10.9.0.1 -b 1G -t 4
expect "TCP segments out of order on h1" 0 "$(unordered h1)"
iperf h1 h2 10.9.0.2 -u -l 1372 -b 300M -t 4
grep -i "out-of-order" "$WORK/iperf" && fail "datagrams arrived out of order"
note "helpers that found work: $(joined h1 wg1) on h1, $(joined h2 wg2) on h2"
expect_at_least "helpers that found work on h1" 100 $(($(joined h1 wg1) - before))
pings h1 10.9.0.2
pings h1 fd09::2

# Many flows, both ways at once.
iperf h1 h2 10.9.0.2 -P 8 -b 60M -t 4 --bidir
expect "TCP segments of many flows out of order on h2" 0 "$(unordered h2)"
expect "TCP segments of many flows out of order on h1" 0 "$(unordered h1)"

# Another peer, on IPv6, while the first one is busy.
host h3
cable h1 f1 h3 e3
address h1 f1 2001:db8:3::1/64
address h3 e3 2001:db8:3::3/64
key h3
daemon h3 wg3
on h3 wg set wg3 listen-port 50003 private-key "$WORK/h3.key" peer "$(public h1)" allowed-ips 10.9.0.1/32 endpoint [2001:db8:3::1]:50001
wg_address h3 wg3 10.9.0.3/24
on h1 wg set wg1 peer "$(public h3)" allowed-ips 10.9.0.3/32
pings h3 10.9.0.1
ip netns exec h3 ping -n -q -c 200 -i 0.01 -W 3 10.9.0.1 >"$WORK/beside" 2>&1 &
beside=$!
iperf h1 h2 10.9.0.2 -b 1G -t 3
wait "$beside" || fail "a ping of the other peer: $(cat "$WORK/beside")"
grep -q ' 0% packet loss' "$WORK/beside" || fail "pings of the other peer were lost: $(grep loss "$WORK/beside")"
iperf h3 h1 10.9.0.1 -b 500M -t 2

# Queues and sockets belong to this daemon alone.
expect "queues of wg1" 2 "$(queues h1 wg1)"
expect "sockets on port 50001" 4 "$(sockets h1 50001)"
for helpers in on-demand always; do
  if LINERATE_HELPERS=$helpers on h1 timeout 5 "$TUNNEL_DAEMON" -f wg1 >"$WORK/second" 2>&1; then fail "a second daemon started for wg1"; fi
  grep -q "interface wg1 exists" "$WORK/second" || fail "a second daemon for wg1 said: $(cat "$WORK/second")"
  LINERATE_HELPERS=$helpers daemon h1 "wg-$helpers"
  ip -n h1 link set "wg-$helpers" up
  expect_failure "the port of wg1 for another tunnel" on h1 wg set "wg-$helpers" listen-port 50001
  on h1 wg set "wg-$helpers" listen-port 50009
  expect_failure "the port of another tunnel for wg1" on h1 wg set wg1 listen-port 50009
  cores=4
  [[ $helpers == always ]] || cores=$(nproc)
  n=$((cores < 4 ? 1 : cores > 32 ? 16 : cores / 2))
  expect "queues of wg-$helpers" $n "$(queues h1 "wg-$helpers")"
  expect "sockets of wg-$helpers" $((2 * n)) "$(sockets h1 50009)"
  stop_daemon "wg-$helpers"
done
pings h1 10.9.0.2
