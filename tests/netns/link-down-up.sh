#!/usr/bin/env bash
# A tunnel whose link goes down forgets its sessions and is silent; up again, it works at once.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
pings h1 10.9.0.2
link_down h1 wg1
count h1 out silent udp sport 50001
no_ping h2 10.9.0.1
expect "datagrams from h1 while it is down" 0 "$(counted h1 silent)"
expect "listening port while it is down" 50001 "$(on h1 wg show wg1 listen-port)"
alive wg1 || fail "the daemon ended"

link_up h1 wg1
address h1 wg1 fd09::1/64 # the kernel drops IPv6 addresses with the link
pings h1 10.9.0.2 -W 2
pings h1 fd09::2

# So soon that the daemon learns of both at once.
before=$(handshake_time h1 wg1)
sleep 1.1
kill -STOP "${PID[wg1]}"
ip -n h1 link set wg1 down
ip -n h1 link set wg1 up
kill -CONT "${PID[wg1]}"
pings h1 10.9.0.2 -W 2
expect_at_least "the last handshake" $((before + 1)) "$(handshake_time h1 wg1)"

# Many times in a row, with traffic.
(on h2 ping -n -q -i 0.01 -w 3 10.9.0.1 || true) &
for _ in {1..20}; do
  ip -n h1 link set wg1 down
  ip -n h1 link set wg1 up
done
wait $!
# h1 lost its session, so it is h1 who can make a new one at once; h2 would notice after 15 seconds.
wait_for 10 "the tunnel to work again" on h1 ping -n -q -c 1 -W 1 10.9.0.2
pings h2 10.9.0.1

# The port that the system chose is kept, unless another program takes it while the link is down.
on h1 wg set wg1 listen-port 0
port=$(on h1 wg show wg1 listen-port)
link_down h1 wg1
expect "the port that was chosen, while the link is down" "$port" "$(on h1 wg show wg1 listen-port)"
ip -n h1 link set wg1 up
wait_for 5 "that port to be open again" listens_udp h1 "$port"
link_down h1 wg1
wait_for 5 "the port to be closed" port_closed h1 "$port"
ip netns exec h1 nc -n -u -l 0.0.0.0 "$port" </dev/null >/dev/null 2>&1 &
other=$!
wait_for 5 "another program to have it" listens_udp h1 "$port"
ip -n h1 link set wg1 up
moved() { [[ $(on h1 wg show wg1 listen-port) != "$port" ]]; }
wait_for 5 "another port" moved
wait_for 5 "it to be open" listens_udp h1 "$(on h1 wg show wg1 listen-port)"
kill "$other"
pings h1 10.9.0.2

# The kernel makes no link-local address, not even after the link went down and up.
link_local() { ip -n h1 -o addr show dev wg3 scope link; }
daemon h1 wg3
ip -n h1 addr add fd03::1/64 dev wg3 nodad
ip -n h1 link set wg3 up
wait_for 5 "wg3 to open its port" eval '(($(on h1 wg show wg3 listen-port) > 0))'
expect "link-local addresses" "" "$(link_local)"
ip -n h1 link set wg3 down
ip -n h1 link set wg3 up
expect "link-local addresses after down and up" "" "$(link_local)"

on h1 wg set wg1 listen-port 50001
# Up with a persistent keepalive: the peer learns of it without any other traffic.
link_down h1 wg1
on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 10
count h1 out spoke udp sport 50001
ip -n h1 link set wg1 up
spoken() { (($(counted h1 spoke) > 0)); }
wait_for 3 "a datagram when the link comes up" spoken
