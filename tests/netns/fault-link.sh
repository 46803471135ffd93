#!/usr/bin/env bash
# timeout: 150
# The interface under load: down and up, without carrier, with a smaller MTU, deleted.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.bash"
need iperf3

two_hosts
tunnel v4
before_fault
up_again() { # HOST IFACE ADDRESS
  ip -n "$1" link set "$2" up
  address "$1" "$2" "$3" # the kernel drops IPv6 addresses with the link
}

say "down and up under load"
stream
for ((i = 0; i < 10; i++)); do
  ip -n h1 link set wg1 down
  sleep 0.1
  up_again h1 wg1 fd09::1/64
  ip -n h2 link set wg2 down
  up_again h2 wg2 fd09::2/64
done
flows
note "down and up ten times: the stream went on after $TOOK ms"
end_stream
after_fault 10 "down and up"

say "no carrier: nothing passes, and nobody is busy"
stream
ip -n h1 link set wg1 carrier off
stalled() { # the kernel takes up to a second to act on it
  local before
  before=$(arrived)
  sleep 0.3
  (($(arrived) == before))
}
wait_for 10 "the stream to stall" stalled
at_ease wg1 10 "no carrier" sleep 1
stalled || fail "packets came from an interface without carrier"
ip -n h1 link set wg1 carrier on
flows
note "carrier again: the stream went on after $TOOK ms"
after_fault 2 "no carrier"

say "the MTU shrinks below the packets under way, and grows again"
for mtu in 600 1280 576 1420; do
  ip -n h2 link set wg2 mtu $mtu
  ip -n h1 link set wg1 mtu $mtu
  flows
done
# Below 1280 bytes the kernel took IPv6 away.
for end in 1 2; do address h$end wg$end fd09::$end/64; done
end_stream
after_fault 2 "another MTU"

say "deleted under load"
stream
ip -n h2 link delete wg2
wait_for 5 "the daemon to end with its interface" gone wg2
status=0
wait "${PID[wg2]}" || status=$?
expect "its status" 0 $status
[[ ! -e /run/wireguard/wg2.sock ]] || fail "its socket is still there"
grep -q "the interface was deleted" "$SCENARIO_LOGS/wg2.log" || fail "its log does not tell why it ended"
at_ease wg1 20 "the other end is gone" sleep 1
daemon h2 wg2
on h2 wg set wg2 listen-port 50002 private-key "$WORK/h2.key" peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128 endpoint 192.0.2.1:50001
wg_address h2 wg2 10.9.0.2/24 fd09::2/64
pings h2 10.9.0.1 # h1 would notice after 15 s
flows
note "made anew: the stream went on after $TOOK ms"
end_stream
after_fault 2 "deleted and made anew"
