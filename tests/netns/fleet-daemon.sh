#!/usr/bin/env bash
# Two gateways have one key and one address. One is killed, the address moves, and the other initiates to the client.
source "$(dirname "$0")/lib.sh"

# c has a way to each gateway; both have the address 192.0.2.100, and c's route says whose it is.
host c g1 g2
cable c e1 g1 f1
cable c e2 g2 f2
address c lo 192.0.2.1/32
for n in 1 2; do
  address c e$n 10.$n.0.1/24
  address g$n f$n 10.$n.0.2/24
  address g$n lo 192.0.2.100/32
  ip -n g$n route add 192.0.2.1/32 via 10.$n.0.1 # which would have it send from 10.$n.0.2
done
address_is_at() { ip -n c route replace 192.0.2.100/32 via 10."$1".0.2 src 192.0.2.1; } # NUMBER
address_is_at 1

key gateway client
index_key=$(wg genkey | hex)
for n in 1 2; do
  daemon g$n wg$n
  on g$n wg set wg$n listen-port 50000 private-key "$WORK/gateway.key" peer "$(public client)" allowed-ips 10.9.0.2/32
  wg_address g$n wg$n 10.9.0.1/24
done
daemon c wg3
on c wg set wg3 private-key "$WORK/client.key" peer "$(public gateway)" allowed-ips 10.9.0.1/32 endpoint 192.0.2.100:50000
wg_address c wg3 10.9.0.2/24

client=$(public client | hex)
ask() { printf '%s\n' "${@:2}" '' | uapi "$1"; } # IFACE LINE...
set_fleet() { ask "$1" set=1 fleet_gateway="${1#wg}" fleet_index_key="$index_key" fleet_address=192.0.2.100 public_key="$client" fleet_number=7 "${@:2}"; }
initiations() { ask wg3 stats=1 | sed -n 's/^handshake_initiations_sent=//p'; }

expect "a number without a fleet" errno=-22 "$(ask wg1 set=1 public_key="$client" fleet_number=7)"
expect "a gateway without a key" errno=-22 "$(ask wg1 set=1 fleet_gateway=1)"
# Of a client that the fleet knows to be new; nothing is known at the other gateway.
expect "the first gateway" errno=0 "$(set_fleet wg1 fleet_hint=none,none,000000000000000000000000)"
expect "the second gateway" errno=0 "$(set_fleet wg2)"
pings c 10.9.0.1
expect "initiations of the client" 1 "$(initiations)"

ip netns exec c ping -n -i 0.02 -w 60 10.9.0.1 >"$WORK/ping.log" 2>&1 &
pinging=$!
sleep 0.5
moved=$(now_ms)
kill -KILL "${PID[wg1]}"
wait_for 5 "the killed daemon to be gone" gone wg1
address_is_at 2
endpoint=192.0.2.1:$(on c wg show wg3 listen-port)
expect "initiate" errno=0 "$(set_fleet wg2 fleet_hint="$endpoint",none,none initiate=true)"
came_back() { [[ $(received g2 wg2) -gt 1000 ]]; } # data, and more than a handshake
wait_for 5 "the client at the second gateway" came_back
note "the client was at the second gateway $(($(now_ms) - moved)) ms after the first was killed"
kill "$pinging"
wait "$pinging" || true
pings c 10.9.0.1
expect "initiations of the client, which needed none" 1 "$(initiations)"
expect "endpoint of the client" "$endpoint" "$(endpoint g2 wg2)"
expect "endpoint of the gateways, as the client sees it" 192.0.2.100:50000 "$(endpoint c wg3)"
