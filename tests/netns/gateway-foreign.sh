#!/usr/bin/env bash
# timeout: 240
# Firewalls of others that drop what a gateway forwards: the commands that `up` names make way, and so does --fix-firewall; `down` leaves them as they were.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"
source "$(dirname "$0")/firewalls.bash"

need nft iptables ip6tables
gateway_hosts

foreign() { # WHAT RULES-FUNCTION : all that is asked of a firewall
  local what=$1 rules=$2
  say "=== $what"
  forget_firewalls
  gateway_file "#! Gateway = up0" "#! Masquerade = both"
  "$rules"
  remember_all
  firewalls >"$WORK/firewalls"
  stopped_then_mended "$what"
  forget_firewalls
  "$rules"
  fixed "$what"
}

foreign "Docker" docker_rules
if type -P iptables-legacy >/dev/null && on h1 iptables-legacy -S >/dev/null 2>&1; then
  IPV4_ONLY=1 foreign "Docker, with iptables of the older kind" docker_legacy
else
  note "the kernel has no iptables of the older kind"
fi
foreign "a firewall of nft's own" site_rules
foreign "a chain that ends in a drop" last_drop_rules
foreign "a set, a map and a verdict for states" map_rules

say "=== a published port"
forget_firewalls
gateway_file "#! Gateway = up0"
docker_rules
on h1 nft -f - <<'NFT'
table ip published {
  chain pre { type nat hook prerouting priority dstnat; tcp dport 8080 dnat to 192.168.77.2:7272; }
  chain post { type nat hook postrouting priority srcnat; oifname "lan1" masquerade; }
}
NFT
on h1 iptables -I DOCKER-FORWARD -d 192.168.77.2 -p tcp --dport 7272 -j ACCEPT
on h1 iptables -I DOCKER-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
good linerate up --fix-firewall wg1
on h1 sysctl -qw net.ipv4.conf.lan1.forwarding=1
new_sessions
ip netns exec lan nc -l 192.168.77.2 7272 >"$WORK/published" </dev/null &
server=$!
wait_for 5 "nc to listen" listens lan 7272
no_ping c1 192.168.77.2
echo hello | on c1 timeout 5 nc -N -w 3 10.9.0.1 8080 || true
kill $server 2>/dev/null || true
expect "what arrived at the published port" hello "$(cat "$WORK/published")"
good linerate down wg1
is_gone wg1
on h1 sysctl -qw net.ipv4.conf.lan1.forwarding=0

say "=== a server"
mount -t tmpfs -o mode=0755 tmpfs /var/lib
site_rules
firewalls >"$WORK/firewalls"
STATUS=0
at h1 "$LINERATE" server init wg7 --endpoint 203.0.113.1 --port 51877 --pool 10.77.0.0/24 --no-ipv6 --fix-firewall >"$WORK/said" 2>&1 || STATUS=$?
expect "server init --fix-firewall: status" 0 "$STATUS"
grep -qx '#! FixFirewall = true' /etc/wireguard/wg7.conf || fail "the server's file does not say FixFirewall"
# Not by a pipe: grep ends it at the first match, also with its output in /dev/null, which nft takes for a failure.
grep -q 'udp dport 51877 accept comment "linerate wg7: UDP port 51877"' <<<"$(on h1 nft list chain inet site input)" || fail "the port of the server is closed"
at h1 "$LINERATE" server remove wg7 --yes >"$WORK/said" 2>&1 || fail "server remove: $(tail -n 1 "$WORK/said")"
firewalls_as_before "server remove"

say "=== what is open is left alone"
forget_firewalls
gateway_file "#! Gateway = up0" "#! Masquerade = ipv4"
on h1 nft -f - <<'NFT'
table bridge b { chain forward { type filter hook forward priority 0; policy drop; }; }
table ip6 six { chain forward { type filter hook forward priority 0; policy accept; }; }
table inet site {
  chain input { type filter hook input priority 0; policy drop; iifname "e1" udp dport { 53, 51820 } accept; meta l4proto udp iifname "up0" udp dport 51000-52000 accept; }
  chain forward { type filter hook forward priority 0; policy drop; ct state invalid drop; ct state vmap { established : accept, related : accept }; jump ways; tcp dport 25 drop; reject; }
  chain ways { ip saddr 172.16.0.0/12 counter; iifname "wg*" accept; drop; }
}
NFT
good linerate up wg1
[[ $(named_commands) == "" ]] || fail "a command is named although the way is open: $(named_commands)"
new_sessions
pings c1 198.18.0.1
pings c2 198.18.0.1
pings c1 10.9.0.3
good linerate down wg1
is_gone wg1

say "=== from peer to peer, where that is all that is closed"
forget_firewalls
on h1 nft -f - <<'NFT'
table inet site { chain forward { type filter hook forward priority 0; policy drop;
  ct state established,related accept
  iifname "wg1" oifname "up0" accept
}; }
NFT
good linerate up wg1
said "what is closed" 'drops what passes from one peer of wg1 to another'
new_sessions
pings c1 198.18.0.1
pings c2 198.18.0.1
no_ping c1 10.9.0.3
good linerate reload --fix-firewall wg1
pings c1 10.9.0.3
gateway_file "#! Gateway = up0" "#! Masquerade = ipv4" "#! ClientIsolation = true"
good linerate reload wg1
! grep -q 'comment "linerate' <<<"$(on h1 nft list ruleset)" || fail "a way from peer to peer stays open for isolated peers"
good linerate down wg1
is_gone wg1
forget_firewalls
