#!/usr/bin/env bash
# timeout: 300
# Three gateways behind a router that spreads clients over them by ECMP: one is killed and its next hop goes, which sends clients
# of the living elsewhere as well; then it is back. Six clients go on without an initiation of theirs.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
unset LINERATE_USER WG_QUICK_BACKEND

behind_router
on r sysctl -qw net.ipv4.fib_multipath_hash_policy=1
next_hops() { # NUMBER...
  local n hops=()
  for n; do hops+=(nexthop via "10.$n.0.2"); done
  ip -n r route replace 192.0.2.100/32 "${hops[@]}" 2>"$WORK/route" || skip "no ECMP in this kernel: $(<"$WORK/route")"
}
next_hops 1 2 3
fleet_up
sleep 4 # a client added earlier might not count as new, and would need a cookie first
clients=6
initiations() { # of all clients
  local k
  for ((k = 1; k <= clients; k++)); do printf 'stats=1\n\n' | uapi wg1$k; done | awk -F= '/^handshake_initiations_sent=/ { n += $2 } END { print n }'
}
for ((k = 1; k <= clients; k++)); do
  client_host c$k $((100 + k))
  client_up phone$k c$k wg1$k
  wait_for 30 "an answer to phone$k" on c$k ping -n -q -c 1 -W 1 10.9.0.1
done
spread() { of_service "$1" '[.gateway.gateways[].peers] | join(" ")'; } # GATEWAY
all_known() { [[ $(of_service "$1" '[.gateway.gateways[].peers] | add') == "$clients" ]]; }
for n in 1 2 3; do wait_for 15 "g$n to know of all clients" all_known g$n; done
note "clients at each gateway: $(spread g2)"
# The fullest is the one that dies.
dead=$(of_service g2 '.gateway.gateways | to_entries | max_by(.value.peers) | .key | tonumber + 1')
mapfile -t alive < <(for n in 1 2 3; do [[ $n == "$dead" ]] || echo $n; done)
sleep 6 # never two handshakes within 5 s
before=$(initiations)

streams=()
for ((k = 1; k <= clients; k++)); do
  ip netns exec c$k ping -n -D -i 0.05 10.9.0.1 >"$SCENARIO_LOGS/c$k.log" 2>&1 &
  streams+=($!)
done
sleep 1
gateway_killed "$dead"
next_hops "${alive[@]}"
sleep 4
gateway_again "$dead"
next_hops 1 2 3
sleep 4
kill -INT "${streams[@]}"
wait "${streams[@]}" || true
gaps=() lost=0
for ((k = 1; k <= clients; k++)); do
  gaps+=("$(awk -F '[][]' '/bytes from/ { if (last && $2 - last > gap) gap = $2 - last; last = $2 } END { printf "%d", gap * 1000 }' "$SCENARIO_LOGS/c$k.log")")
  lost=$((lost + $(awk '/packets transmitted/ { print $1 - $4 }' "$SCENARIO_LOGS/c$k.log")))
done
note "a gateway of three killed and back, longest silences of $clients clients: ${gaps[*]} ms; $lost lost; clients at each gateway: $(spread "g${alive[0]}")"
expect_at_most "the longest silence, ms" 14000 "$(printf '%s\n' "${gaps[@]}" | sort -n | tail -n 1)"
expect "initiations of the clients meanwhile" 0 "$(($(initiations) - before))"
for ((k = 1; k <= clients; k++)); do wait_for 30 "an answer to phone$k at the end" on c$k ping -n -q -c 1 -W 1 10.9.0.1; done
