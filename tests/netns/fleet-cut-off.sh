#!/usr/bin/env bash
# timeout: 300
# A gateway is cut off from the store and from the others while it lives: its client goes on elsewhere, a client that is removed
# meanwhile is not let in by it once its view is too old, and it follows when it is back. Then the store goes, too.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
unset LINERATE_USER WG_QUICK_BACKEND

behind_router
client_host c 100
client_host d 101
fleet_up --max-stale 10
sleep 4 # a client added earlier might not count as new, and would need a cookie first

answers_to() { on "$1" ping -n -q -c 1 -W 1 10.9.0.1 >/dev/null; } # HOST
client_up phone c wg8
wait_for 30 "an answer to phone" answers_to c
address_is_at 2
client_up lamp d wg9
wait_for 30 "an answer to lamp" answers_to d
split_up() { [[ $(of_service g3 '[.gateway.gateways[].peers] | join(" ")') == "1 1 0" ]]; }
wait_for 15 "phone at g1 and lamp at g2" split_up

say "g2 is cut off, and lamp's packets come to g1"
cut_off() { ip -n s link set "p$1" down; } # GATEWAY
connected() { ip -n s link set "p$1" up; }
cut_off g2
address_is_at 1
wait_for 20 "g2 to see that it is alone" is_said g2 .gateway.initiates false
wait_for 30 "an answer to lamp from another gateway" answers_to d
answers_to c || wait_for 30 "an answer to phone" answers_to c
lamp_is_elsewhere() { [[ $(of_service g1 '.gateway.gateways["1"].peers') == 0 ]]; }
wait_for 15 "nobody to be at g2" lamp_is_elsewhere
expect "handshakes that g2 began meanwhile" 0 "$(of_service g2 .gateway.counters.initiated)"

say "lamp is removed"
gw g1 "$LINERATE" client remove lamp >>"$SCENARIO_LOGS/client.log" 2>&1 || fail "client remove: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
for n in 1 3; do wait_for 10 "lamp to be gone from g$n" lacks_peer g$n "$(client_key lamp)"; done
has_peer g2 "$(client_key lamp)" || fail "g2 knows what it cannot know"
stale() { printf 'stats=1\n\n' | uapi_of g2 | sed -n 's/^drop_stale_initiation=//p'; }
uapi_of() { gw "$1" nc -N -U /var/run/wireguard/wg0.sock; } # GATEWAY
address_is_at 2
begins_anew() { # lamp, with another session
  on d wg set wg9 peer "$(public fleet)" remove
  client_set lamp d wg9
  answers_to d || true
}
refused_as_stale() { begins_anew && [[ $(stale) -gt 0 ]]; }
wait_for 60 "g2 to refuse lamp, as it knows too little" refused_as_stale
answers_to d && fail "g2 has let lamp in with a view that is too old"

say "g2 is back"
connected g2
wait_for 30 "lamp to be gone from g2" lacks_peer g2 "$(client_key lamp)"
wait_for 30 "g2 to initiate for others" is_said g2 .gateway.initiates true
address_is_at 1
wait_for 30 "an answer to phone" answers_to c

say "the store is gone"
etcd_down
phone_at() { of_service "$1" '.gateway.gateways | to_entries[] | select(.value.peers == 1) | .key | tonumber + 1'; }
at=$(phone_at g3)
next=$((at % 3 + 1)) third=$(((at + 1) % 3 + 1))
sleep 6 # never two handshakes within 5 s
gateway_killed "$at"
address_is_at "$next"
ip netns exec c ping -n -q -i 0.05 -w 20 10.9.0.1 >"$WORK/ping" 2>&1 || true
phone_moved() { [[ $(phone_at "g$third") != "$at" ]]; }
wait_for 20 "phone to be at another gateway without the store" phone_moved
wait_for 20 "an answer to phone" answers_to c
