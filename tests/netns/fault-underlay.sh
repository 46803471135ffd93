#!/usr/bin/env bash
# timeout: 150
# The route to the peer changes, is blocked or disappears, under load: the tunnel carries on as soon as there is one again.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.bash"
need iperf3

LOG_LEVEL=info # as users have it
routed_hosts
cable h1 f1 r q1 # a second way from h1 to the router
address h1 f1 203.0.113.1/24
address r q1 203.0.113.254/24
tunnel v4
before_fault

say "the source address is another, the default route goes over another interface, and back"
changed() { # WHAT : after a change to the way, the stream flows on
  flows
  note "$1: the stream went on after $TOOK ms"
}
stream -b 100M
ip -n h1 addr del 192.0.2.1/24 dev e1
address h1 e1 192.0.2.9/24 2>/dev/null
ip -n h1 route replace default via 192.0.2.254
changed "another source address"
expect "endpoint of h1 on h2" 192.0.2.9:50001 "$(endpoint h2 wg2)"
ip -n h1 route replace default via 203.0.113.254 dev f1
changed "the default route over another interface"
expect "endpoint of h1 on h2" 203.0.113.1:50001 "$(endpoint h2 wg2)"
ip -n h1 link set f1 down
ip -n h1 addr del 192.0.2.9/24 dev e1
address h1 e1 192.0.2.1/24
ip -n h1 route replace default via 192.0.2.254 src 192.0.2.1
changed "that interface goes down, and the first one has the route again"
end_stream
after_fault 2 "another way"

say "what bars the way, one by one, and goes again"
ip netns exec h1 ping -n -q -i 0.002 10.9.0.2 >"$WORK/pinged" 2>&1 &
barred() { # WHAT COUNTER BAR... -- UNBAR...
  local what=$1 counter=$2 before bar=()
  shift 2
  while [[ $1 != -- ]]; do bar+=("$1") && shift; done
  shift
  before=$(stat_of wg1 "$counter")
  "${bar[@]}"
  at_ease wg1 10 "$what" no_ping h1 10.9.0.2
  [[ $counter == none ]] || expect_at_least "$what: $counter" 10 $(($(stat_of wg1 "$counter") - before))
  "$@"
  after_fault 10 "$what"
}

barred "the peer's host says that nobody listens" none rule h2 in udp dport 50002 reject -- unblock h2
barred "a router says that there is no such host" none rule r in udp dport 50002 reject with icmp type host-unreachable -- unblock r
barred "the host is unreachable" drop_send_unreachable ip -n h1 route add unreachable 198.51.100.2 -- ip -n h1 route del unreachable 198.51.100.2
barred "no route" drop_send_unreachable ip -n h1 route del default -- ip -n h1 route add default via 192.0.2.254
barred "the way is prohibited" drop_send_denied ip -n h1 route add prohibit 198.51.100.2 -- ip -n h1 route del prohibit 198.51.100.2
barred "a black hole" drop_send_failed ip -n h1 route add blackhole 198.51.100.2 -- ip -n h1 route del blackhole 198.51.100.2
firewall() { # VERDICT
  on h1 nft "add table inet bar; add chain inet bar out { type filter hook output priority 0; }; add rule inet bar out udp dport 50002 $1"
}
no_firewall() { on h1 nft delete table inet bar; }
barred "a firewall drops" drop_send_denied firewall drop -- no_firewall
barred "a firewall rejects" drop_send_denied firewall reject -- no_firewall
cable_down() { ip -n h1 link set e1 down; }
cable_up() { ip -n h1 link set e1 up && ip -n h1 route replace default via 192.0.2.254 src 192.0.2.1; }
barred "the interface is down" drop_send_unreachable cable_down -- cable_up
cable_out() { ip -n h1 link delete e1; }
cable_in() {
  cable h1 e1 r r1
  address h1 e1 192.0.2.1/24
  address r r1 192.0.2.254/24
  ip -n h1 route add default via 192.0.2.254
}
barred "the interface is deleted, and another takes its place" drop_send_unreachable cable_out -- cable_in
expect_at_most "lines in the log of wg1" 3 "$(wc -l <"$SCENARIO_LOGS/wg1.log")"
