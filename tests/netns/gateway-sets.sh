#!/usr/bin/env bash
# Rules of nft with sets, maps and addresses: what they open for a gateway is not called closed, what they do not is, and what cannot be judged is said to be unknown.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"

need nft
gateway_hosts
gateway_file "#! Gateway = up0" "#! Masquerade = both"
SETS='set ways { type ifname . ifname; elements = { "wg1" . "up0", "up0" . "wg1", "wg1" . "wg1" }; }
  set tunnels { type ifname; flags interval; elements = { "lo", "wg*" }; }
  set ports { type inet_service; flags interval; elements = { 53, 51000-52000 }; }
  set others { type inet_service; elements = { 53, 51821 }; }
  set friends { type ipv4_addr; flags interval; elements = { 10.9.0.0/24 }; }
  map verdicts { type ifname : verdict; elements = { "wg1" : jump ours, "up0" : goto back }; }
  chain ours { accept; }
  chain back { ct state { established, related } accept; }
  chain nothing { counter; }'

judged() { # ANSWER HOOK RULES : of a chain that drops what no rule decides
  on h1 nft flush ruleset
  on h1 nft -f - <<NFT || fail "these rules do not load: $3"
table inet site {
  $SETS
  chain filtered { type filter hook $2 priority 0; policy drop;
    $3
  }
}
NFT
  good linerate plan wg1
  local said=open
  ! grep -q "filtered of the firewall table inet site drops" "$WORK/said" || said=closed
  ! grep -q "filtered of the firewall table inet site may drop" "$WORK/said" || said=unknown
  expect "what passes by '$3'" "$1" "$said"
}
known='ct state established,related accept'

say "interfaces"
judged closed forward ''
judged open forward "iifname . oifname @ways accept"
judged open forward 'iifname . oifname { "wg1" . "up0", "up0" . "wg1", "wg1" . "wg1" } accept'
judged open forward 'iifname . oifname vmap { "wg1" . "up0" : accept, "up0" . "wg1" : accept, "wg1" . "wg1" : accept }'
judged closed forward 'iifname . oifname vmap { "wg1" . "up0" : accept, "up0" . "wg1" : accept }'
judged open forward "iifname vmap @verdicts"
judged closed forward 'iifname vmap { "wg1" : jump nothing, "up0" : accept }'
judged closed forward 'iifname vmap { "wg1" : jump nothing, * : accept }'
judged open forward 'iifname vmap { "wg1" : jump ours, * : accept }'
judged closed forward 'iifname vmap { "wg2" : jump nothing, * : drop }'
judged open forward "$known; iifname @tunnels accept"
judged open forward "$known; iifname { \"wg1\", \"wg2\" } accept"
judged closed forward "$known; iifname { \"wg10\", \"wg2\" } accept"
judged open forward 'iifname != { "e1", "lan1" } accept'
judged closed forward 'iifname != { "wg1", "lan1" } accept'
judged open forward "$known; iif != \"up0\" accept"
judged closed forward "$known; iif { \"up0\", \"lo\" } accept"

say "states, protocols, addresses"
judged open forward 'ct state vmap { established : accept, related : accept, invalid : drop }; ct state new accept'
judged closed forward 'ct state vmap { established : accept, related : accept, new : drop }; accept'
judged open forward "$known; meta l4proto { tcp, udp } accept"
judged closed forward "$known; meta l4proto tcp accept"
judged closed forward "$known; meta nfproto ipv4 accept"
judged open forward "$known; meta nfproto ipv4 accept; meta nfproto ipv6 accept"
judged open forward "$known; ip saddr 10.9.0.0/24 accept; ip6 saddr fd09::/64 accept"
judged open forward "$known; ip saddr { 10.9.0.0/24, 10.10.0.0/20 } accept; ip6 saddr { fd09::/64, fd10::1 } accept"
judged closed forward "$known; ip saddr 10.8.0.0/24 accept; ip6 saddr fd09::/64 accept"
judged closed forward "$known; iifname \"wg1\" ip daddr 10.0.0.0/8 accept"
judged open forward "$known; limit rate 10/second accept"
judged closed forward 'ip saddr != 10.8.0.0/24 drop; accept'
judged open forward "ip saddr != { 10.9.0.0/24, 10.10.0.0/20 } oifname up0 drop; accept"
judged open forward "$known; iifname wg1 oifname wg1 accept; ip daddr != { 10.0.0.0/8, 192.168.0.0/16 } accept; ip6 daddr != fc00::/7 accept"
judged closed forward 'meta nfproto != ipv4 drop; accept'

say "what cannot be judged"
judged unknown forward "$known; ip saddr @friends accept; ip6 saddr fd09::/64 accept"
judged unknown forward "$known; meta mark 0x7 accept"
judged unknown forward "$known; ip saddr 10.9.0.2 accept; ip6 saddr fd09::2 accept"
judged unknown forward "$known; meta mark vmap { 0x7 : accept }"
judged open forward "$known; meta mark 0x7 drop; ip saddr @friends drop; accept"
judged unknown forward "$known; meta mark != 0x7 drop; accept"
judged open forward "$known; meta mark != 0x0 drop; accept"
judged unknown forward "$known; ip saddr != @friends drop; accept"

say "datagrams of peers"
judged open input "udp dport @ports accept"
judged closed input "udp dport @others accept"
judged open input "udp dport vmap { 53 : drop, 51800-51900 : jump ours }"
judged open input "meta l4proto . th dport { udp . 51820, tcp . 22 } accept"
judged closed input "meta l4proto . th dport { tcp . 51820 } accept"
judged closed input "ip saddr 192.168.0.0/16 accept"
judged open input "iif { \"up0\", \"lo\" } ip protocol udp accept"
for port in "!= { 22, 53 }" "!= 22" "!= 22-53" "!= 22 udp dport != 53"; do judged closed input "udp dport $port drop; accept"; done
for port in "!= { 22, 51820 }" "!= 51820" "!= 51000-52000" "!= @ports"; do judged open input "udp dport $port drop; accept"; done
judged closed input "udp dport != @others drop; accept"
judged closed input "meta l4proto != tcp drop; accept"
judged open input "meta l4proto != udp drop; accept"
for net in 192.168.1.0/24 192.168.1.1-192.168.1.9 "{ 10.0.0.0/8, 192.168.0.0/16 }"; do
  judged closed input "ip saddr != $net drop; ip6 saddr != fd00::/8 drop; accept"
done
judged unknown input "ip saddr != @friends drop; ip6 saddr != fd00::/8 drop; accept"
judged unknown input "ip daddr != 203.0.113.5 drop; ip6 daddr != 2001:db8::5 drop; accept"

say "one version of IP"
judged open input "meta nfproto ipv6 udp dport 51820 accept"
ip -n h1 -6 route flush default
judged closed input "meta nfproto ipv6 udp dport 51820 accept"
judged open input "meta nfproto ipv4 udp dport 51820 accept"
