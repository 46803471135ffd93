#!/usr/bin/env bash
# timeout: 600
# Standard clients of a fleet, the kernel's module in an emulated machine and wireguard-go: their gateway is killed, and another
# goes on with both without an initiation of theirs. Beside it, two gateways of wireguard-go with one key and a moved address.
source "$(dirname "$0")/lib.sh"
source "$REPO/tests/netns/tunnel-files.bash"
source "$REPO/tests/netns/fleet.bash"
unset LINERATE_USER WG_QUICK_BACKEND
GO=$PEERS/wireguard
[[ -x $GO ]] || GO=$(type -P wireguard-go) || skip "there is no wireguard-go (tests/interop/prepare)"

behind_router
# The guest has one end of k1, wireguard-go's host one of rc.
boot_guest r k1
ip -n r addr flush dev k1
address r k1 198.51.101.254/24 169.254.77.1/30
guest 'ip addr add 198.51.101.2/24 dev eth0; ip route add default via 198.51.101.254'
host c
cable c e1 r rc
address c e1 198.51.100.1/24
address r rc 198.51.100.254/24
ip -n c route add default via 198.51.100.254
fleet_up
sleep 4 # a client added earlier might not count as new, and would need a cookie first
for name in guest phone; do
  client_add g1 $name || fail "client add: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
  sed -n 's/^PrivateKey = //p' "$WORK/$name.conf" >"$WORK/$name.key"
  sed -n 's/^PresharedKey = //p' "$WORK/$name.conf" >"$WORK/$name.psk"
  for n in 1 2 3; do wait_for 10 "$name on g$n" has_peer g$n "$(client_key $name)"; done
done
own() { client_address "$1" | sed 's,/.*,,'; }
settings() { # CLIENT : arguments of wg set
  echo private-key "$WORK/$1.key" peer "$(public fleet)" preshared-key "$WORK/$1.psk" allowed-ips 10.9.0.1/32 endpoint 192.0.2.100:51820
}
share "$WORK/guest.key" "$WORK/guest.psk"
guest "ip link add wg9 type wireguard; wg set wg9 $(settings guest); ip addr add $(own guest)/24 dev wg9; ip link set wg9 up"
daemon c wg8 "$GO" -f
# shellcheck disable=SC2046
on c wg set wg8 $(settings phone)
wg_address c wg8 "$(own phone)/24"

# Each of these says when the answers came.
guest_answers_ping() { guest "ping -n -c 1 -W 2 10.9.0.1 >/dev/null"; }
go_answers_ping() { on c ping -n -c 1 -W 2 10.9.0.1 >/dev/null; }
wait_for 30 "an answer to the guest" guest_answers_ping
wait_for 30 "an answer to wireguard-go" go_answers_ping
both_at() { [[ $(owner "$1" 2) == "$2" ]]; } # GATEWAY NUMBER
wait_for 15 "both clients at g1" both_at g2 1
handshakes() { guest "wg show wg9 latest-handshakes" | cut -f 2; }

longest() { # LOG : the longest time between two answers, in ms
  awk -F '[][]' '/bytes from/ { if (last && $2 - last > gap) gap = $2 - last; last = $2 } END { printf "%d", gap * 1000 }' "$1"
}
streams() { # SECONDS
  guest "ping -n -D -i 0.05 -w $1 10.9.0.1" >"$SCENARIO_LOGS/guest.log" 2>&1 &
  STREAMING=($!)
  ip netns exec c ping -n -D -i 0.01 -w "$1" 10.9.0.1 >"$SCENARIO_LOGS/go.log" 2>&1 &
  STREAMING+=($!)
}
say "the gateway of both is killed"
sleep 6 # never two handshakes within 5 s
initiations() { grep -c 'Sending handshake initiation' "$SCENARIO_LOGS/wg8.log"; }
before=$(handshakes) begun=$(initiations)
streams 20
sleep 3
gateway_killed 1
address_is_at 2
wait "${STREAMING[@]}" || true
guest_gap=$(longest "$SCENARIO_LOGS/guest.log") go_gap=$(longest "$SCENARIO_LOGS/go.log")
note "a gateway killed, longest silence: the kernel's module (emulated, 20 pings a second) $guest_gap ms, wireguard-go (100 a second) $go_gap ms"
# Their own timers begin anew after 15 s.
expect_at_most "the module's longest silence, ms" 14000 "$guest_gap"
expect_at_most "wireguard-go's longest silence, ms" 14000 "$go_gap"
((before < $(handshakes))) || fail "the module has no newer session"
expect "initiations of wireguard-go meanwhile" "$begun" "$(initiations)"
no_longer_at_1() { [[ $(of_service g2 '.gateway.gateways["0"].peers') == 0 ]]; }
wait_for 15 "nobody to be at the dead gateway" no_longer_at_1

say "a pair of wireguard-go with one key"
host a b d
address_of_pair() { ip -n d route replace 192.0.2.50/32 via 10.1"$1".0.2; } # NUMBER
key pair lone
number=0
for name in a b; do
  number=$((number + 1))
  cable d d$number $name u0
  address d d$number 10.1$number.0.1/24
  address $name u0 10.1$number.0.2/24
  address $name lo 192.0.2.50/32
  ip -n $name route add default via 10.1$number.0.1 src 192.0.2.50
  daemon $name pair$number "$GO" -f
  on $name wg set pair$number listen-port 51820 private-key "$WORK/pair.key" peer "$(public lone)" allowed-ips 10.8.0.2/32
  wg_address $name pair$number 10.8.0.1/24
done
address_of_pair 1
daemon d lone "$GO" -f
on d wg set lone private-key "$WORK/lone.key" peer "$(public pair)" allowed-ips 10.8.0.1/32 endpoint 192.0.2.50:51820
wg_address d lone 10.8.0.2/24
pings d 10.8.0.1
ip netns exec d ping -n -D -i 0.01 -w 90 10.8.0.1 >"$SCENARIO_LOGS/pair.log" 2>&1 &
STREAMING=$!
sleep 2
kill -KILL "${PID[pair1]}"
sleep 0.3
address_of_pair 2
# Others' patience is not ours to test: it is only told.
arrived() { [[ $(received b pair2) -gt 2000 ]]; }
waited=0
until arrived || ((++waited > 60)); do sleep 1; done
sleep 1
kill -INT "$STREAMING"
wait "$STREAMING" || true
silence="$(longest "$SCENARIO_LOGS/pair.log") ms"
arrived || silence="more than 60 s"
note "the same of two wireguard-go with one key, whose address moves after 300 ms: $silence"
