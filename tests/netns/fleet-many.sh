#!/usr/bin/env bash
# timeout: 300
# heavy: 1,000 clients shake hands at once
# The gateway of 1,000 clients is killed: the others take all of them over before any would begin by itself, and once more when
# one of these dies. Times are for tests/lab/fleet-take-over to measure.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
unset LINERATE_USER WG_QUICK_BACKEND
export LOG_LEVEL=error

behind_router
many_clients 1000
fleet_up

for at in 1 2; do
  next=$((at + 1)) other=$(((at + 1) % 3 + 1))
  address_is_at $at
  many_clients_up
  for n in $next $other; do wait_for 30 "g$n to know whose the clients are" knows_of g$n "$MANY" $at; done
  sleep 6 # never two handshakes within 5 s
  say "gateway $at is killed"
  death=$EPOCHREALTIME
  gateway_killed $at
  address_is_at $next
  many_clients_taken "$death"
  note "gateway $at killed: $(jq -r '"\(.taken) of \(.clients) clients taken over, the last after \(.last_ms) ms"' <<<"$TAKEN")"
  expect "clients that were taken over before they would have begun by themselves" "$MANY" "$(jq .taken <<<"$TAKEN")"
  for n in $next $other; do
    if said g$n "the daemon refused"; then fail "orders to the daemon of g$n were lost: $(tail -n 1 "$SCENARIO_LOGS/g$n.log")"; fi
  done
  ((at == 2)) || gateway_again $at
done
