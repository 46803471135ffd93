#!/usr/bin/env bash
# timeout: 60
# doctor names what iptables of the older kind drops: datagrams of both directions, what a gateway forwards, what comes out of the tunnel.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/doctor.bash"

need iptables-legacy jq nft
two_hosts
tunnel v4
on h1 iptables-legacy -S >/dev/null 2>&1 || skip "the kernel has no iptables of the older kind"
pings h1 10.9.0.2
healthy "tables without rules" h1 wg1
rules() { # RULE... : the only ones in h1
  on h1 iptables-legacy -F
  on h1 iptables-legacy -X
  on h1 iptables-legacy -P INPUT ACCEPT
  local rule
  # shellcheck disable=SC2086
  for rule in "$@"; do on h1 iptables-legacy $rule; done
}

say "datagrams"
rules "-A OUTPUT -o e1 -p udp -m udp --dport 50002 -j DROP"
forget h1 wg1
finds "a rule against what is sent" h1 wg1 firewall-drops-sent
tells "a rule of table ip filter of iptables-legacy, chain OUTPUT drops them"
tells "iptables-legacy -nvL OUTPUT. shows the rules"
advised "a rule against what is sent" h1 firewall-drops-sent
forget h1 wg1
pings h1 10.9.0.2
healthy "that rule, after what was advised" h1 wg1
rules "-A INPUT -i lo -j ACCEPT" "-P INPUT DROP"
forget h1 wg1
finds "a policy against what arrives" h1 wg1 firewall-drops-port no-handshake-nothing-arrives
tells "of iptables-legacy drops the datagrams of peers: no rule of chain INPUT accepts them, and its policy is drop"
command=$(grep -oE 'iptables-legacy -w -I INPUT -p udp --dport 50001 -j ACCEPT' "$WORK/doctor" | head -n 1)
# shellcheck disable=SC2086
on h1 $command
on h1 iptables-legacy -A INPUT -i wg1 -j ACCEPT
forget h1 wg1
pings h1 10.9.0.2
healthy "that policy, after the command that was named" h1 wg1
rules "-N guard" "-A INPUT -j guard" "-A guard -p udp -m udp ! --dport 53 -j REJECT"
forget h1 wg1
finds "a chain that rejects all ports but one" h1 wg1 firewall-drops-port no-handshake-nothing-arrives
tells "of iptables-legacy drops the datagrams of peers: rule 1 of chain guard drops them"

say "without nft"
nft=$(type -P nft)
mount --bind /bin/false "$nft"
finds "likewise" h1 wg1 firewall-drops-port no-handshake-nothing-arrives
umount "$nft"
rules "-A INPUT -p udp -m udp --dport 50001 -m mark --mark 0x7 -j DROP"
forget h1 wg1
pings h1 10.9.0.2
healthy "a rule with a condition that is not read" h1 wg1

say "packets of the tunnel"
rules "-A INPUT -i wg+ -p icmp -j DROP"
finds "a rule against what comes out of the tunnel" h1 wg1 firewall-drops-tunnel
tells "of iptables-legacy, chain INPUT drops them"
advised "a rule against what comes out of the tunnel" h1 firewall-drops-tunnel
healthy "that rule, after what was advised" h1 wg1
rules "-P FORWARD DROP" "-A FORWARD -i wg1 -o e1 -j ACCEPT"
on h1 sysctl -qw net.ipv4.ip_forward=1
on h1 nft 'add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; add rule ip nat post ip saddr 10.9.0.0/24 masquerade'
ip -n h1 route add default via 192.0.2.2
# Two that it waits for are clients.
key other
on h1 wg set wg1 peer "$(public h2)" remove
on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.0.2/32 peer "$(public other)" allowed-ips 10.9.0.3/32
forget h2 wg2
pings h2 10.9.0.1
finds "a gateway whose answers are dropped" h1 wg1 firewall-drops-forwarded
tells "no rule of chain FORWARD accepts them"
on h1 iptables-legacy -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
healthy "a gateway whose answers pass" h1 wg1
