#!/usr/bin/env bash
# timeout: 90
# doctor says nothing of what is usual on healthy hosts and looks like a fault at first.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/doctor.bash"

two_hosts
tunnel v4

say "an idle tunnel"
doctor h1 wg1 --no-probe
expect "what doctor finds if it sends nothing through a tunnel that nobody has used" "" "$FOUND"
expect "its status" 0 "$STATUS"

say "networks within networks, addresses of a link, groups"
host lan
cable h1 lan1 lan lan2
address h1 lan1 192.168.0.1/24
on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.0.2/32,fd09::2/128,192.168.0.0/16,224.0.0.5/32,fe80::/64,ff02::/16
ip -n h1 route add 192.168.0.0/16 dev wg1
ip -n h1 addr add fe80::77/64 dev wg1 nodad
ip -n h1 addr add fe80::77/64 dev lan1 nodad
healthy "a local network within one of the tunnel's" h1 wg1
ip -n h1 route del 192.168.0.0/16
ip -n h1 route add 192.168.0.0/16 via 192.168.0.2
finds "and a network that is elsewhere" h1 wg1 route-elsewhere
on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.0.2/32,fd09::2/128

say "no IPv6 in a tunnel for everything"
on h1 sysctl -qw net.ipv6.conf.wg1.disable_ipv6=1
on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.0.2/32,::/0
finds "everything as IPv4 only" h1 wg1 ipv6-disabled
expect "its status" 0 "$STATUS"

say "a server, its clients off, behind a firewall"
forget h2 wg2
on h2 wg set wg2 peer "$(public h1)" remove
on h2 wg set wg2 peer "$(public h1)" allowed-ips 10.9.0.1/32
for number in {10..60}; do
  printf 'peer %s allowed-ips 10.9.0.%d/32\n' "$(head -c 32 /dev/urandom | base64)" "$number"
done | xargs ip netns exec h2 wg set wg2
# As the examples of nftables have it.
on h2 nft -f - <<'RULES'
table inet filter {
  set open { type inet_service; flags interval; elements = { 22, 50000-50010 }; }
  chain input {
    type filter hook input priority 0; policy drop;
    ct state vmap { established : accept, related : accept, invalid : drop }
    iifname lo accept
    icmp type echo-request accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-advert, echo-request } accept
    tcp dport 22 accept
    iifname "e2" udp dport @open accept
  }
}
RULES
healthy "a server of clients that are off" h2 wg2
on h2 nft 'flush set inet filter open'
finds "and with its port closed" h2 wg2 firewall-drops-port
tells "nft 'insert rule inet filter input udp dport 50002 accept'"
