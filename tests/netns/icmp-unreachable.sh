#!/usr/bin/env bash
# A packet into the tunnel that cannot be delivered is answered at once, by ICMP.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
key h3
pings h1 10.9.0.2

told() { # ADDRESS PATTERN : a ping to ADDRESS gets an ICMP error
  on h1 ping -n -c 1 -W 2 "$1" >"$WORK/told" 2>&1 && fail "a ping to $1 was answered"
  grep -qE "$2" "$WORK/told" || fail "ping to $1: expected an answer that matches '$2', saw: $(grep -vE '^(PING|$|---)' "$WORK/told" | tr '\n' ' ')"
  say "ping to $1: $(grep -E "$2" "$WORK/told" | head -n 1)"
}

say "no peer has this address"
told 10.9.0.77 'Destination Host Unreachable'
told fd09::77 'Destination unreachable: Address unreachable'

say "the peer has no endpoint"
on h1 wg set wg1 peer "$(public h3)" allowed-ips 10.9.0.3/32,fd09::3/128
told 10.9.0.3 'Destination Host Unreachable'
told fd09::3 'Destination unreachable: Address unreachable'

say "a TCP connection fails at once instead of after its timeout"
started=$(now_ms)
expect_failure "connecting to an address without a peer" on h1 timeout 10 bash -c 'exec 3<>/dev/tcp/10.9.0.77/80'
expect_at_most "milliseconds until it failed" 5000 $(($(now_ms) - started))

say "the sender may also be someone whose packets h1 forwards"
host lan
cable lan e3 h1 l1
address lan e3 172.16.0.2/24
address h1 l1 172.16.0.1/24
ip -n lan route add default via 172.16.0.1
forwarding h1
on lan ping -n -c 1 -W 2 10.9.0.77 >"$WORK/told" 2>&1 || true
grep -q 'Destination Host Unreachable' "$WORK/told" || fail "a forwarded ping: expected Destination Host Unreachable, saw $(tail -n +2 "$WORK/told")"

# An ICMP error never answers an ICMP error, and a multicast is not answered at all.
count h1 in errors iifname wg1 icmp type destination-unreachable
on h1 ping -n -c 1 -W 1 -I wg1 224.0.0.5 >/dev/null 2>&1 || true
expect "ICMP errors that answer a multicast" 0 "$(counted h1 errors)"
pings h1 10.9.0.2
