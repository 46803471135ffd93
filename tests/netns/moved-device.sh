#!/usr/bin/env bash
# timeout: 30
# The interface moves into another namespace, as into a container: its datagrams still leave from where it was made.
source "$(dirname "$0")/lib.sh"

two_hosts
host inside
key h1 h2
daemon h1 wg1
daemon h2 wg2
ip -n h1 link set wg1 netns inside
on h1 wg set wg1 listen-port 50001 private-key "$WORK/h1.key" peer "$(public h2)" allowed-ips 10.9.0.2/32,fd09::2/128
on h2 wg set wg2 listen-port 50002 private-key "$WORK/h2.key" peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128
point v4
wg_address inside wg1 10.9.0.1/24 fd09::1/64
wg_address h2 wg2 10.9.0.2/24 fd09::2/64
wait_for 5 "the port to be open where the interface was made" listens_udp h1 50001
pings inside 10.9.0.2
pings h2 fd09::1

# Its link is watched there: down closes the port, up opens it, the MTU is known, deleting it ends the daemon.
link_down inside wg1
wait_for 5 "the port to be closed" port_closed h1 50001
link_up inside wg1
wait_for 5 "the port to be open again" listens_udp h1 50001
ip -n inside link set wg1 mtu 1300
pings inside 10.9.0.2 -s 1272 -M do
ip -n inside link del wg1
wait_for 5 "the daemon to end" gone wg1
