#!/usr/bin/env bash
# timeout: 100
# Endpoints that are names: `up` does not wait; they are looked up later, in both families, and again when the peer is silent; roaming is respected.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
hosts=$WORK/etc/hosts
key h4 h6
other_end() { # IFACE KEY PORT ADDRESS
  daemon h2 "$1"
  on h2 wg set "$1" listen-port "$3" private-key "$WORK/$2.key" peer "$(public h1)" allowed-ips "${4%.2}.1/32"
  wg_address h2 "$1" "$4/24"
  wait_for 5 "$1 to open its port" listens_udp h2 "$3"
}
other_end wg4 h4 50004 10.8.0.2
other_end wg6 h6 50006 10.7.0.2
file() { # IFACE KEY ENDPOINT ADDRESS
  (umask 077 && cat >"/etc/wireguard/$1.conf") <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = ${4%.2}.1/24
[Peer]
PublicKey = $(public "$2")
Endpoint = $3
AllowedIPs = $4/32
CONF
}
file wg1 h2 unknown.example.com:50002 10.9.0.2
file wg3 h4 both.example.com:50004 10.8.0.2
file wg5 h6 moves.example.com:50006 10.7.0.2
no_supervisor() { ! supervisor_of "$1"; }
connected() { on h1 ping -n -q -c 1 -W 1 "$1"; } # ADDRESS
remember

say "a name that nobody knows yet"
begun=$(now_ms)
good linerate up wg1
took=$(($(now_ms) - begun))
said "up" "unknown.example.com:50002: no address yet"
note "up with a name that is unknown: $took ms"
expect "its endpoint" "(none)" "$(endpoint h1 wg1)"
wait_for 5 "its supervisor" supervisor_of wg1

say "a name whose first addresses do not answer, one of them of the other family; and one that is another's now"
printf '%s\n' "127.0.0.1 localhost" "2001:db8::99 both.example.com" "192.0.2.99 moves.example.com" >"$hosts"
good linerate up wg3
good linerate up wg5
wait_for 15 "the first address" eval '[[ $(endpoint h1 wg3) == "[2001:db8::99]:50004" ]]'
wait_for 15 "the address" eval '[[ $(endpoint h1 wg5) == 192.0.2.99:50006 ]]'
begun=$(now_ms)
{ on h1 ping -n -q -i 1 -W 1 10.8.0.2 >/dev/null 2>&1 || true; } &
{ on h1 ping -n -q -i 1 -W 1 10.7.0.2 >/dev/null 2>&1 || true; } &
printf '%s\n' "127.0.0.1 localhost" "192.0.2.2 unknown.example.com" "2001:db8::99 both.example.com" "192.0.2.2 both.example.com" "192.0.2.2 moves.example.com" >"$hosts"
wait_for 12 "the name to be found" connected 10.9.0.2
note "connected after the name was known: $(($(now_ms) - begun)) ms"
expect "its endpoint" 192.0.2.2:50002 "$(endpoint h1 wg1)"

say "a peer that has moved is not sent back"
on h2 wg set wg2 listen-port 50012
pings h2 10.9.0.1
expect "its endpoint" 192.0.2.2:50012 "$(endpoint h1 wg1)"

wait_for 60 "the address of the other family" connected 10.8.0.2
note "connected by the other family: $(($(now_ms) - begun)) ms"
wait_for 60 "the new address" connected 10.7.0.2
note "connected by the new address: $(($(now_ms) - begun)) ms"
pings h1 10.9.0.2
expect "the endpoint of the one that had moved" 192.0.2.2:50012 "$(endpoint h1 wg1)"

say "a reload follows the names of the file, and one with the same name undoes no roam"
good linerate reload wg1
said "reload" "nothing has changed"
sed -i 's/^AllowedIPs.*/&, 198.18.0.0\/24/' /etc/wireguard/wg1.conf
good linerate reload wg1
expect "the endpoint of the one that had moved" 192.0.2.2:50012 "$(endpoint h1 wg1)"
pings h1 10.9.0.2

say "the supervisors end with their tunnels"
pkill -x ping
for name in wg1 wg3 wg5; do
  supervisor_of $name >/dev/null || fail "there is no supervisor of $name"
  good linerate down $name
  is_gone $name
  wait_for 5 "the supervisor of $name to end" no_supervisor $name
done
as_before "down"
good wg-quick up wg1
wait_for 5 "the supervisor of wg-quick's" supervisor_of wg1
ip -n h1 link delete wg1
wait_for 5 "the supervisor to end with its interface" no_supervisor wg1
good wg-quick down wg1
as_before "down"
