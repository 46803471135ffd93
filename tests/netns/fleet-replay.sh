#!/usr/bin/env bash
# A gateway that never heard of a client has no floor of its timestamps. A stranger sends it an initiation of that client, recorded
# on its way to another gateway: he gets cookies at most, the endpoint stays, and the client itself comes in. Then there is a floor.
source "$(dirname "$0")/lib.sh"
need tcpdump python3

# c and the stranger x each have a way to both gateways; where 192.0.2.100 is, c's and x's routes say.
host c x g1 g2
for n in 1 2; do
  address g$n lo 192.0.2.100/32
  for from in c x; do
    cable $from e$n g$n $from$n
    net=$n$([[ $from == c ]] && echo 0 || echo 1)
    address $from e$n 10.$net.0.1/24
    address g$n $from$n 10.$net.0.2/24
  done
  ip -n g$n route add 192.0.2.1/32 via 10.${n}0.0.1
done
address c lo 192.0.2.1/32
address_is_at() { ip -n c route replace 192.0.2.100/32 via 10."$1"0.0.2 src 192.0.2.1; } # NUMBER
address_is_at 1
ip -n x route add 192.0.2.100/32 via 10.21.0.2

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
ask() { printf '%s\n' "${@:2}" '' | uapi "$1"; } # IFACE LINE...
stat() { ask wg2 stats=1 | sed -n "s/^$1=//p"; } # NAME : of the second gateway
for n in 1 2; do
  expect "gateway $n" errno=0 "$(ask wg$n set=1 fleet_gateway=$n fleet_index_key="$index_key" fleet_address=192.0.2.100 \
    public_key="$(public client | hex)" fleet_number=7 "$([[ $n == 1 ]] && echo "fleet_hint=none,none,$(printf '0%.0s' {1..24})" || echo fleet_hint=none,none,none)")"
done

say "an initiation is recorded"
ip netns exec c timeout 20 tcpdump -ni e1 -c 1 -x 'udp dst port 50000 and udp[8] = 1' >"$WORK/seen" 2>"$WORK/tcpdump" &
watching=$!
listens() { grep -q 'listening on' "$WORK/tcpdump"; }
wait_for 10 "tcpdump to listen" listens
pings c 10.9.0.1
wait "$watching" || fail "no initiation was seen"
recorded=$(sed -n 's/^\t0x[0-9a-f]*: *//p' "$WORK/seen" | tr -d ' \n' | cut -c 57-352)
[[ $recorded =~ ^01000000[0-9a-f]{288}$ ]] || fail "no initiation in $(cat "$WORK/seen")"

# Sends it twenty times, one in 50 ms, and prints how many answers and bytes came, and the length of the longest.
replayed() {
  on x python3 -c '
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("192.0.2.100", 50000))
s.settimeout(0.05)
answers = []
for _ in range(20):
    s.send(bytes.fromhex(sys.argv[1]))
    try: answers.append(len(s.recv(2000)))
    except OSError: pass
print(len(answers), sum(answers), max(answers, default=0))' "$recorded"
}
say "it is sent to the gateway without a floor"
read -r answers bytes longest <<<"$(replayed)"
note "to the stranger: $answers cookies of 20 initiations"
expect_at_least "answers to the stranger" 1 "$answers"
expect "bytes of the longest answer, a cookie reply" 64 "$longest"
expect "bytes to the stranger, of 2960 that he sent" $((64 * answers)) "$bytes"
expect "the client's endpoint at the second gateway" "(none)" "$(endpoint g2 wg2)"

say "the client itself comes"
address_is_at 2
sleep 5 # never two handshakes within that time
expect "the client begins" errno=0 "$(ask wg3 set=1 public_key="$(public gateway | hex)" initiate=true)"
is_here() { [[ $(endpoint g2 wg2) == 192.0.2.1:* ]]; }
wait_for 20 "the client at the second gateway" is_here
pings c 10.9.0.1
where=$(endpoint g2 wg2)

say "the recorded initiation again"
before=$(stat drop_replayed)
read -r answers bytes longest <<<"$(replayed)"
expect "answers to the stranger" 0 "$answers"
expect_at_least "initiations that were refused as old" 1 "$(($(stat drop_replayed) - before))"
expect "the client's endpoint" "$where" "$(endpoint g2 wg2)"
pings c 10.9.0.1
