#!/usr/bin/env bash
# timeout: 240
# A fleet without IPv4: its store, its mesh, the address that clients know and those inside the tunnel are of IPv6. The route
# moves while the client's gateway lives, the gateway drains, and is killed.
FLEET_FAMILY=6
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
unset LINERATE_USER WG_QUICK_BACKEND

behind_router
client_host c 100
fleet_up
for host in s g1 g2 g3 c r; do
  [[ -z $(ip -n $host -4 -o addr show scope global) ]] || fail "$host has an address of IPv4"
done

sleep 4 # a client added earlier might not count as new, and would need a cookie first
client_up phone c wg9
grep -q "^Endpoint = \[2001:db8::100\]:51820" "$WORK/phone.conf" || fail "the client's file has no endpoint: $(grep Endpoint "$WORK/phone.conf")"
initiations() { printf 'stats=1\n\n' | uapi wg9 | sed -n 's/^handshake_initiations_sent=//p'; }

on c ping -n -c 1 -W 20 "$INNER" >"$WORK/ping" || fail "no answer to the first ping"
for n in 1 2 3; do wait_for 10 "g$n to know whose the client is" is_owner g$n 1; done
expect "initiations of the client" 1 "$(initiations)"
has_route() { [[ $(gw "$1" ip -6 route show table 200 proto 108 2>/dev/null) == fd09::2\ dev\ wg0* ]]; } # GATEWAY
has_none() { ! has_route "$1"; }
wait_for 5 "a route to the client on g1" has_route g1
for n in 2 3; do has_none g$n || fail "g$n has a route to the client of g1"; done

say "the route moves while the gateway lives"
stream moved
sleep 1
address_is_at 2
sleep 2
pings c "$INNER" -s 1372 # the longest that fits into the tunnel
stream_ends
note "route moved: $LOST lost, longest silence $GAP ms, $(counter g2 forwarded) forwarded, $(counter g1 injected) injected"
expect_at_least "datagrams that g1 was given" 100 "$(counter g1 injected)"
expect "lost while the route moved" 0 "$LOST"
is_owner g2 1 || fail "the session has moved to $(owner g2)"
expect "initiations of the client" 1 "$(initiations)"

say "drain"
address_is_at 1
stream drained
sleep 1
fleet g1 drain || fail "drain: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
wait_for 15 "g1 to be drained" is_said g1 .gateway.is_drained true
wait_for 5 "g2 to know that the client has moved" is_said g2 '.gateway.gateways["0"].peers' 0
sleep 1
stream_ends
at=$(owner g2)
wait_for 5 "the route to the client on g$at" has_route "g$at"
wait_for 5 "no route to the client on g1" has_none g1
note "drain to g$at: $LOST lost, longest silence $GAP ms"
expect "lost while g1 drained" 0 "$LOST"
expect "initiations of the client" 1 "$(initiations)"
fleet g1 undrain || fail "undrain: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
wait_for 10 "g1 to initiate again" is_said g1 .gateway.initiates true

say "a gateway is killed"
address_is_at "$at"
sleep 6 # never two handshakes within 5 s
stream killed
sleep 1
gateway_killed "$at"
address_is_at "$(another "$at")"
had=$(answered)
wait_for 15 "answers after the gateway was killed" answers_again $((had + 50))
stream_ends
note "killed: longest silence $GAP ms, $LOST lost"
expect_at_most "the longest silence when a gateway is killed, ms" 5000 "$GAP"
expect "initiations of the client" 1 "$(initiations)"
new=$(owner "g$(another "$at")")
wait_for 5 "the route to the client on g$new" has_route "g$new"
expect "endpoint of the gateways, as the client sees it" "$SHARED_ENDPOINT" "$(endpoint c wg9)"
