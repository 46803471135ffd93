#!/usr/bin/env bash
# timeout: 60
# A client behind a masquerading router stays reachable while it sends persistent keepalives, and only then.
source "$(dirname "$0")/lib.sh"

routed_hosts
ip -n h2 route del default # the server knows nothing of the client's network
on r nft -f - <<'NFT'
table ip nat {
  chain out { type nat hook postrouting priority 100; oifname "r2" masquerade; }
}
table inet guard {
  chain forward { type filter hook forward priority 0; policy drop; iifname "r1" accept; ct state established,related accept; }
}
NFT
on r sysctl -qw net.netfilter.nf_conntrack_udp_timeout=2 net.netfilter.nf_conntrack_udp_timeout_stream=2 ||
  skip "this kernel gives the namespace no conntrack timeouts"
tunnel none
on h1 wg set wg1 peer "$(public h2)" endpoint 198.51.100.2:50002

pings h1 10.9.0.2
seen=$(endpoint h2 wg2)
expect "address of the client as the server sees it" 198.51.100.254 "${seen%:*}"
pings h2 10.9.0.1

sleep 5
no_ping h2 10.9.0.1 # the router forgot the client

on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 1
wait_for 5 "a keepalive to open the way" on h2 ping -n -q -c 1 -W 1 10.9.0.1
sleep 5
pings h2 10.9.0.1

# The router restarts and gives the client another port: one keepalive later the server knows.
on r nft delete table ip nat
on r nft 'table ip nat { chain out { type nat hook postrouting priority 100; oifname "r2"  meta l4proto udp masquerade to :60000-60100; }; }'
on r conntrack -F 2>/dev/null || sleep 4
wait_for 5 "the server to reach the client again" on h2 ping -n -q -c 1 -W 1 10.9.0.1
