#!/usr/bin/env bash
# timeout: 200
# A fleet whose one gateway is dead, and a stranger who has seen an index of its client: 10,000 datagrams a second with it get an
# initiation in 5 s at most, never more bytes than were sent, and move no endpoint. Those with random indices get nothing.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
unset LINERATE_USER WG_QUICK_BACKEND
need tcpdump python3

behind_router
client_host c 100
client_host x 102
fleet_up
sleep 4 # a client added earlier might not count as new, and would need a cookie first
client_up phone c wg9

# The index of the client's session at g1, as anybody on the way sees it.
ip netns exec c timeout 20 tcpdump -ni e1 -c 1 -x 'udp dst port 51820 and udp[8] = 4' >"$WORK/seen" 2>/dev/null &
watching=$!
sleep 0.5
pings c 10.9.0.1
wait "$watching" || fail "no data message was seen"
index=$(sed -n 's/^\t0x[0-9a-f]*: *//p' "$WORK/seen" | tr -d ' \n' | cut -c 65-72)
[[ $index =~ ^[0-9a-f]{8}$ ]] || fail "no index in $(cat "$WORK/seen")"
for n in 2 3; do wait_for 10 "g$n to know of the client" is_said g$n '.gateway.gateways["0"].peers' 1; done
where=$(on c wg show wg9 listen-port)

sleep 6 # never two handshakes within 5 s
gateway_killed 1
address_is_at 2
is_dead() { is_said "$1" '.gateway.gateways["0"].is_alive' false; } # GATEWAY
for n in 2 3; do wait_for 10 "g$n to know that g1 is dead" is_dead g$n; done

ip netns exec x tcpdump -ni e1 -w "$SCENARIO_LOGS/stranger.pcap" -U udp port 666 2>/dev/null &
watching=$!
flood() { # INDEX SECONDS : 10,000 datagrams a second, of 32 bytes; random indices without one
  on x python3 -c '
import os, socket, sys, time
index, seconds = bytes.fromhex(sys.argv[1]), float(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 666))
s.connect(("192.0.2.100", 51820))
start, sent = time.monotonic(), 0
while time.monotonic() - start < seconds:
    while sent < (time.monotonic() - start) * 10000:
        try: s.send(b"\x04\0\0\0" + (index or os.urandom(4)) + sent.to_bytes(8, "little") + os.urandom(16))
        except OSError: pass
        sent += 1
    time.sleep(0.002)
print(sent)' "$1" "$2"
}
to_stranger() { tcpdump -nr "$SCENARIO_LOGS/stranger.pcap" 'dst port 666' 2>/dev/null | grep -o 'length [0-9]*' | awk '{ n++; bytes += $2 } END { print n + 0, bytes + 0 }'; }
say "random indices"
sent=$(flood "" 6)
expect_at_least "datagrams that were sent" 20000 "$sent"
expect "datagrams and bytes to the stranger" "0 0" "$(to_stranger)"
say "the index of the client"
sent=$(flood "$index" 11)
sleep 1
read -r answers bytes < <(to_stranger)
seen=$(for n in 2 3; do of_service g$n '.gateway.counters | to_entries[] | select(.value > 0) | "\(.key) \(.value)"'; done |
  awk '{ n[$1] += $2 } END { for (name in n) printf "%s %d, ", name, n[name] }')
note "by the gateways: ${seen%, }"
[[ $seen == *late* || $seen == *refused* || $seen == *forwarded* ]] || fail "no datagram reached a gateway's service"
note "$sent datagrams with the client's index in 11 s: $answers answers of $bytes bytes"
expect_at_most "initiations to the stranger in 11 s" 3 "$answers"
expect_at_most "bytes to the stranger" $((sent * 32)) "$bytes"
for n in 2 3; do
  endpoint=$(gw g$n wg show wg0 endpoints | cut -f 2)
  [[ $endpoint != 198.51.102.1:* ]] || fail "g$n takes the stranger for the client"
done
kill "$watching"
wait_for 60 "an answer to the client" on c ping -n -q -c 1 -W 1 10.9.0.1
here() { gw g2 wg show wg0 endpoints | grep -q "198.51.100.1:$where" || gw g3 wg show wg0 endpoints | grep -q "198.51.100.1:$where"; }
wait_for 10 "the client's endpoint at another gateway" here
