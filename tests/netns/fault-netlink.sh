#!/usr/bin/env bash
# timeout: 180
# News of the network that overflow the daemon's netlink socket: it looks anew, and acts on what changed meanwhile.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.bash"

two_hosts
address h1 e1 192.0.2.11/24
tunnel v4
on h2 wg set wg2 peer "$(public h1)" endpoint 192.0.2.11:50001
before_fault # from now on h1 answers from its second address


say "more news than the daemon's socket holds, before and after what matters"
flood() { # each route is one message when it comes and one when it goes
  local i j
  for i in {0..9}; do for j in {0..199}; do echo "route add 198.18.$i.$j/32 dev e1"; done; done | ip -n h1 -batch -
  ip -n h1 route flush root 198.18.0.0/16
}
# Messages that the busiest listener of h1 has lost; the daemon is the only one there.
lost() { on h1 awk 'NR > 1 && $9 > n { n = $9 } END { print n + 0 }' /proc/net/netlink; }
beside_a_flood() { # COMMAND...
  local before
  before=$(lost)
  kill -STOP "${PID[wg1]}"
  flood
  "$@"
  flood
  expect_at_least "messages lost: $*" 1000 $(($(lost) - before))
  kill -CONT "${PID[wg1]}"
}

beside_a_flood ip -n h1 addr del 192.0.2.11/24 dev e1
wait_for 5 "traffic from another source" carries
pings h2 10.9.0.1
expect "endpoint of h1 on h2" 192.0.2.1:50001 "$(endpoint h2 wg2)"
address h1 e1 192.0.2.11/24

beside_a_flood ip -n h1 link set wg1 down
wait_for 5 "the port to be closed as the link is down" port_closed h1 50001
beside_a_flood ip -n h1 link set wg1 mtu 1300 up
wait_for 5 "the port to be open as the link is up" listens_udp h1 50001
address h1 wg1 fd09::1/64 # the kernel drops IPv6 addresses with the link
on h2 wg set wg2 peer "$(public h1)" endpoint 192.0.2.11:50001
after_fault 5 "news lost"
pings h1 10.9.0.2 -s 1272 -M do
at_ease wg1 10 "after the floods" sleep 1

say "300,000 routes elsewhere, and some that change and lead nowhere"
ip -n h1 link add full0 type veth peer name full1
for end in full0 full1; do ip -n h1 link set $end up; done
peak() { awk '/^VmHWM/ { print $2 }' "/proc/${PID[wg1]}/status"; } # KB
before=$(peak)
awk 'BEGIN { for (i = 0; i < 300000; i++) printf "route add 11.%d.%d.%d/32 dev full0\n", i / 65536, i / 256 % 256, i % 256 }' |
  ip -n h1 -batch -
ip -n h1 route add 198.51.100.0/24 dev wg1 mtu 1290 # which has the daemon look at the routes over its device
for i in {1..50}; do ip -n h1 route add blackhole 203.0.113.$i; done
pings h1 10.9.0.2
sleep 1.2 # a look for all of these together
expect_at_most "KB that the daemon took for the routes of others" 4096 $(($(peak) - before))
after_fault 5 "many routes"
at_ease wg1 10 "after them" sleep 1

beside_a_flood ip -n h1 link delete wg1
wait_for 5 "the daemon to end with its interface" gone wg1
status=0
wait "${PID[wg1]}" || status=$?
expect "its status" 0 $status
[[ ! -e /run/wireguard/wg1.sock ]] || fail "its socket is still there"
