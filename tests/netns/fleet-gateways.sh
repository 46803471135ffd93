#!/usr/bin/env bash
# timeout: 300
# Three gateways of a fleet behind a router, and a client that sends 100 datagrams a second: the route moves while its gateway
# lives, its gateway drains, is stopped for 10 s, and is killed with all that it runs.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
unset LINERATE_USER WG_QUICK_BACKEND

behind_router
client_host c 100
fleet_up

sleep 4 # a client added earlier might not count as new, and would need a cookie first
client_up phone c wg9
initiations() { printf 'stats=1\n\n' | uapi wg9 | sed -n 's/^handshake_initiations_sent=//p'; }

on c ping -n -c 1 -W 20 10.9.0.1 >"$WORK/ping" || fail "no answer to the first ping"
wait_for 10 "g1 to own the client" is_owner g1 1
for n in 2 3; do wait_for 10 "g$n to know whose the client is" is_owner g$n 1; done
expect "initiations of the client" 1 "$(initiations)"
has_route() { [[ $(gw "$1" ip route show table 200 proto 108 2>/dev/null) == 10.9.0.2*wg0* ]]; } # GATEWAY
has_none() { ! has_route "$1"; }
wait_for 5 "a route to the client on g1" has_route g1
for n in 2 3; do has_none g$n || fail "g$n has a route to the client of g1"; done

say "the route moves while the gateway lives"
stream moved
sleep 1
address_is_at 2
sleep 2
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
at=$(owner g2)
sleep 17 # the daemon of g1 hears nothing more of the client, which is no reason to begin with it after 15 s
stream_ends
expect "who has the client" "$at" "$(owner g2)"
wait_for 5 "the route to the client on g$at" has_route "g$at"
wait_for 5 "no route to the client on g1" has_none g1
note "drain to g$at: $LOST lost, longest silence $GAP ms"
expect "lost while g1 drained" 0 "$LOST"
expect "initiations of the client" 1 "$(initiations)"
fleet g1 undrain || fail "undrain: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
wait_for 10 "g1 to initiate again" is_said g1 .gateway.initiates true

say "a gateway stops for 10 s"
address_is_at "$at"
sleep 1
stream stopped
sleep 1
mapfile -t stopped < <(all_of "$at")
kill -STOP "${stopped[@]}"
next=$(another "$at")
address_is_at "$next"
had=$(answered)
wait_for 15 "answers after the gateway stopped" answers_again "$((had + 50))"
sleep 9
kill -CONT "${stopped[@]}"
wait_for 10 "the stopped gateway to see all again" sees_all "g$at"
sleep 2
stream_ends
note "stopped for 10 s: longest silence $GAP ms, $LOST lost"
expect_at_most "the longest silence when a gateway stops, ms" 5000 "$GAP"
new=$(owner "g$next")
[[ $new != "$at" ]] || fail "the session is back at g$at"
wait_for 10 "the stopped gateway to know it" is_owner "g$at" "$new"
say "initiations of the client: $(initiations)"

for round in 1 2 3; do
  say "a gateway is killed ($round)"
  at=$(owner g1)
  [[ $at ]] || at=$(owner g2)
  address_is_at "$at"
  next=$(another "$at")
  sleep 6
  stream killed$round
  sleep 1
  before=$(initiations)
  gateway_killed "$at"
  address_is_at "$next"
  had=$(answered)
  wait_for 15 "answers after the gateway was killed" answers_again "$((had + 50))"
  stream_ends
  note "killed: longest silence $GAP ms, $LOST lost"
  expect_at_most "the longest silence when a gateway is killed, ms" 5000 "$GAP"
  expect "initiations of the client meanwhile" 0 "$(($(initiations) - before))"
  ((round < 3)) || break
  gateway_again "$at"
done
expect "endpoint of the gateways, as the client sees it" "$SHARED_ENDPOINT" "$(endpoint c wg9)"
