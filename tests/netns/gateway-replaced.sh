#!/usr/bin/env bash
# timeout: 180
# heavy: a neighbour and a client send as fast as they can
# While a reload replaces the table of a gateway, neither a forged source nor a packet of a restricted client passes: the
# kernel deletes the old chains a moment before the sets of the new ones have elements.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"
source "$(dirname "$0")/neighbour.bash"

need nft python3 jq
gateway_hosts
on h1 sysctl -qw net.ipv4.conf.{all,default,up0}.rp_filter=0
PEER_LINE[c1]="#! Destinations = 198.18.0.1, 2001:db8:18::1"
count c1 in forged iifname wg3 udp dport 6000
count inet in forbidden iifname i0 udp dport 7777 ip daddr 198.18.0.2
sent() { ip -n "$1" -j -s link show "$2" | jq ".[0].stats64.tx.packets"; } # HOST DEVICE
gateway_file "#! Gateway = up0" "#! Inbound = replies"
good linerate up wg1
new_sessions
pings c1 10.9.0.1

neighbour_goes_on inet i0 h1 up0 repeat udp from=10.9.0.3 to=10.9.0.2 sport=5000 dport=6000 + udp from=fd09::3 to=fd09::2 sport=5000 dport=6000
neighbour_goes_on c1 wg3 m m1 flood 198.18.0.2
for ((number = 1; number <= 30; number++)); do
  for inbound in all replies; do
    sed -i "s/^#! Inbound.*/#! Inbound = $inbound/" /etc/wireguard/wg1.conf
    turn linerate reload wg1
    ((STATUS == 0)) || fail "reload $number ended with $STATUS: $(cat "$WORK/said")"
  done
done
expect_at_least "packets of the neighbour" 10000 "$(sent inet i0)"
expect_at_least "packets of the restricted client" 10000 "$(sent c1 wg3)"
expect "forged and forbidden datagrams that passed during 60 reloads" "0 0" "$(counted c1 forged) $(counted inet forbidden)"
tables() { on h1 nft list tables | awk '$3 ~ /linerate/ { print $3 }' | sort | xargs; }
expect "tables" "linerate_forwarding linerate_gateway-wg1" "$(tables)"

say "a reload that was killed leaves the copy that was in force meanwhile"
kill "$NEIGHBOUR_PID"
for left in linerate_gateway-wg1/next linerate_forwarding/next; do on h1 nft "add table inet $left"; done
sed -i "s/^#! Inbound.*/#! Inbound = all/" /etc/wireguard/wg1.conf
good linerate reload wg1
expect "tables after a reload" "linerate_forwarding linerate_forwarding/next linerate_gateway-wg1" "$(tables)"
on h1 nft "add table inet linerate_gateway-wg1/next"
good linerate down wg1
expect "tables after down" "" "$(tables)"
