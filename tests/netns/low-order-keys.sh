#!/usr/bin/env bash
# A public key of low order can be configured, but never gets a packet: the Diffie-Hellman result would be zero.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
pings h1 10.9.0.2

# The points of small order of Curve25519 and their encodings above the prime, in hexadecimal.
keys=(
  0000000000000000000000000000000000000000000000000000000000000000
  0100000000000000000000000000000000000000000000000000000000000000
  e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800
  5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157
  ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f
  edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f
  eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f
)
count h2 in datagrams udp dport 50099
n=10
for hex in "${keys[@]}"; do
  key=$(for ((i = 0; i < 64; i += 2)); do printf '%b' "\\x${hex:i:2}"; done | base64)
  on h1 wg set wg1 peer "$key" allowed-ips 10.9.9.$n/32 endpoint 192.0.2.2:50099 persistent-keepalive 1
  grep -qxF "$key" <<<"$(on h1 wg show wg1 peers)" || fail "the peer with key $hex was not accepted"
  n=$((n + 1))
done
ip -n h1 route add 10.9.9.0/24 dev wg1
for ((i = 10; i < n; i++)); do no_ping h1 10.9.9.$i -W 0.3; done
sleep 1.2
expect "datagrams to peers of low order" 0 "$(counted h2 datagrams)"
pings h1 10.9.0.2
