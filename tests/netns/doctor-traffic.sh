#!/usr/bin/env bash
# timeout: 120
# doctor tells why a tunnel with a session carries nothing: routes, allowed IPs, filters, sizes; and why it does not forward.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/doctor.bash"

need jq
routed_hosts
host inet
cable h2 up2 inet i0
address h2 up2 203.0.113.2/24
address inet i0 203.0.113.9/24
ip -n h2 route del default
ip -n h2 -6 route del default
ip -n h2 route add default via 203.0.113.9
ip -n h2 route add 192.0.2.0/24 via 198.51.100.254
tunnel v4
pings h1 10.9.0.2
healthy "a tunnel in use" h1 wg1
healthy "the other end" h2 wg2

say "routes"
peer=$(public h2)
on h1 wg set wg1 peer "$peer" allowed-ips 10.9.0.2/32,fd09::2/128,10.20.0.0/16
ip -n h1 route del default
finds "an allowed IP without a route" h1 wg1 route-missing
tells "ip route add 10.20.0.0/16 dev wg1"
ip -n h1 route add default via 192.0.2.254
finds "an allowed IP that goes elsewhere" h1 wg1 route-elsewhere
ip -n h1 route add 10.20.0.0/16 dev wg1
healthy "an allowed IP with its route" h1 wg1
host lan
cable h1 lan1 lan lan2
address h1 lan1 10.20.5.1/16
ip -n h1 route del 10.20.0.0/16 dev wg1
finds "a local network with the same addresses" h1 wg1 route-elsewhere
tells "the local network there has the same addresses"
ip -n h1 link del lan1
on h1 wg set wg1 peer "$peer" allowed-ips 10.9.0.2/32,fd09::2/128
ip -n h1 route add 10.30.0.0/16 dev wg1
on h1 ping -n -q -c 1 -W 1 10.30.0.1 >/dev/null || true
finds "a route to no peer" h1 wg1 route-without-peer
tells "[1-9][0-9]* packets dropped for want of a peer"
ip -n h1 route del 10.30.0.0/16

say "allowed IPs"
on h2 wg set wg2 peer "$(public h1)" allowed-ips 10.9.0.77/32
no_ping h1 10.9.0.2
ip -n h2 route add 10.9.0.1 dev wg2 2>/dev/null || true
doctor h2 wg2
tells "source-not-allowed"
forget h1 wg1 && forget h2 wg2
finds "the other end does not let our address in" h1 wg1 traffic-unanswered
on h2 wg set wg2 peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128
ip -n h2 route del 10.9.0.1 dev wg2 2>/dev/null || true
pings h1 10.9.0.2

say "filters"
on h1 nft 'add table inet fw; add chain inet fw in { type filter hook input priority 0; policy drop; }; add rule inet fw in udp dport 50001 accept; add rule inet fw in iifname wg1 counter drop'
finds "a rule against what comes out of the tunnel" h1 wg1 firewall-drops-tunnel
tells "a rule of table inet fw, chain in drops them \([1-9]"
advised "a rule against what comes out of the tunnel" h1 firewall-drops-tunnel
healthy "that rule, after what was advised" h1 wg1
on h1 nft 'delete table inet fw; add table inet fw; add chain inet fw out { type filter hook output priority 0; }; add rule inet fw out oifname wg1 drop'
finds "a rule against what goes into the tunnel" h1 wg1 firewall-drops-tunnel
advised "a rule against what goes into the tunnel" h1 firewall-drops-tunnel
healthy "that rule, after what was advised" h1 wg1
on h1 nft delete table inet fw
on h1 sysctl -qw net.ipv4.conf.wg1.rp_filter=1
healthy "a strict reverse path filter that has nothing to say" h1 wg1
on h1 sysctl -qw net.ipv4.conf.wg1.rp_filter=0

say "sizes"
block r in ip protocol udp ip length 1000-1500
block r out ip protocol udp ip length 1000-1500
finds "a path that swallows large datagrams" h1 wg1 mtu-black-hole
tells "MTU = 9[0-9][0-9] in the file"
unblock r
ip -n h1 link set e1 mtu 1400 && ip -n r link set r1 mtu 1400
finds "a link below the tunnel's MTU" h1 wg1 mtu-too-large
tells "ip link set wg1 mtu 1340"
ip -n h1 link set e1 mtu 1500 && ip -n r link set r1 mtu 1500
healthy "a path for full packets" h1 wg1

say "a reverse path filter"
# Everything goes into the tunnel but its own datagrams, by a mark: what comes back has none.
on h1 wg set wg1 fwmark 51820 peer "$peer" allowed-ips 0.0.0.0/0,fd09::2/128
ip -n h1 route add default dev wg1 table 51820
ip -n h1 rule add not fwmark 51820 table 51820 priority 200
ip -n h1 rule add table main suppress_prefixlength 0 priority 100
on h1 sysctl -qw net.ipv4.conf.all.src_valid_mark=0 net.ipv4.conf.e1.rp_filter=1
forget h1 wg1
finds "a strict filter before the tunnel" h1 wg1 reverse-path-filter
tells "sysctl -w net.ipv4.conf.e1.rp_filter=2"
on h1 sysctl -qw net.ipv4.conf.e1.rp_filter=2
forget h1 wg1
healthy "a loose filter" h1 wg1
on h1 sysctl -qw net.ipv4.conf.e1.rp_filter=0
ip -n h1 rule del priority 100
ip -n h1 rule del priority 200

say "a gateway"
stop_daemon wg1 && stop_daemon wg2
tunnel v4
on h2 wg set wg2 peer "$(public h1)" remove
on h2 wg set wg2 peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128
forget h1 wg1
pings h1 10.9.0.2
printf '[Interface]\nPrivateKey = %s\nListenPort = 50002\n[Peer]\nPublicKey = %s\nAllowedIPs = 10.9.0.1/32, fd09::1/128\n' "$(cat "$WORK/h2.key")" "$(public h1)" >"$WORK/wg2.conf"
mount -t tmpfs -o mode=0700 tmpfs /etc/wireguard 2>/dev/null || skip "there is no /etc/wireguard to put a tmpfs on"
cp "$WORK/wg2.conf" /etc/wireguard/wg2.conf
on h2 nft 'add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; add rule ip nat post ip saddr 10.9.0.0/24 masquerade; add table inet mss; add chain inet mss through { type filter hook forward priority 0; }; add rule inet mss through tcp flags syn tcp option maxseg size set rt mtu'
finds "address translation without forwarding" h2 wg2 forwarding-off ipv6-without-nat
on h2 sysctl -qw net.ipv4.ip_forward=1
finds "forwarding, and IPv6 not translated" h2 wg2 ipv6-without-nat
on h2 nft 'add table ip6 nat; add chain ip6 nat post { type nat hook postrouting priority 100; }; add rule ip6 nat post ip6 saddr fd09::/64 masquerade'
on h2 sysctl -qw net.ipv6.conf.all.forwarding=1
healthy "a gateway" h2 wg2
on h2 nft delete table inet mss
finds "a gateway for TCP segments of any size" h2 wg2 mss-not-limited
on h2 nft 'add table inet fw; add chain inet fw through { type filter hook forward priority 0; policy drop; }; add rule inet fw through tcp flags syn tcp option maxseg size set rt mtu'
finds "a firewall that forwards nothing" h2 wg2 firewall-drops-forwarded
tells "chain through accepts them, and its policy is drop"
on h2 nft 'add rule inet fw through iifname wg2 accept; add rule inet fw through ct state established accept'
healthy "a firewall that lets the tunnel pass" h2 wg2
