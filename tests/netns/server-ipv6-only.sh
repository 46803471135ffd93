#!/usr/bin/env bash
# timeout: 120
# A server on a host with IPv6 only: clients reach it and the IPv6 internet, and `init` and `client add` warn about IPv4. The
# default route may come from a router advertisement after `up`; a CLAT may provide IPv4 (RFC 6877).
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
source "$(dirname "$0")/doctor.bash"
need jq dnsmasq

own_file /etc/nsswitch.conf <<<"hosts: dns"
internet
ip -n h1 route del default
ip -n h1 address flush dev e1 scope global
address h1 e1 2001:db8:1::5/64
ip -n h1 -6 route replace default via 2001:db8:1::1
# DNS64: a name without an IPv6 address gets one of NAT64's prefix, which is routed to web here.
address web w1 64:ff9b::c633:6402/128
ip -n inet -6 route add 64:ff9b::/96 via 2001:db8:3::2
on web dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --bind-interfaces --user=root \
  --listen-address=2001:db8:3::2 --address=/www.example.com/64:ff9b::c633:6402 --pid-file="$WORK/dns.pid" >>"$SCENARIO_LOGS/dnsmasq.log" 2>&1 &
wait_for 5 "the name server" listens_udp web 53
laptop() { at laptop timeout 60 "$LINERATE" "$1" "$WORK/wg9.conf" >>"$SCENARIO_LOGS/said.log" 2>&1; } # VERB
resolved() { at laptop timeout 20 getent ahostsv6 www.example.com | awk '{ print $1; exit }'; }
removed() { server remove --yes && is_gone wg0; }

say "init without options"
echo "nameserver 2001:db8:3::2" >"$WORK/etc/resolv.conf"
server init
said "the server's endpoint" "clients reach it at \[2001:db8:1::5\]:51820"
said "clients without IPv6" "networks without IPv6 do not reach this server"
said "the missing IPv4 route, from init" "no default route for IPv4.*DNS64.*server set --dns"
healthy "a server for IPv6" h1 wg0
good linerate client add phone --output "$WORK/wg9.conf"
said "the missing IPv4 route, from client add" "no default route for IPv4.*DNS64"
expect "the endpoint" "Endpoint = [2001:db8:1::5]:51820" "$(grep ^Endpoint "$WORK/wg9.conf")"
expect "the name servers" "DNS = 2001:db8:3::2" "$(grep ^DNS "$WORK/wg9.conf")"
expect "the client's AllowedIPs" "AllowedIPs = 0.0.0.0/0, ::/0" "$(grep ^AllowedIPs "$WORK/wg9.conf")"
laptop up
pings laptop 2001:db8:3::2
expect "a name" 64:ff9b::c633:6402 "$(resolved)"
pings laptop 64:ff9b::c633:6402
at laptop ping -n -c 1 -W 2 198.51.100.2 >"$WORK/ping" 2>&1 && fail "expected no answer over IPv4"
grep -q "Unreachable" "$WORK/ping" || fail "IPv4 is not answered with an error: $(tr '\n' ' ' <"$WORK/ping")"
healthy "a server for IPv6 with a client" h1 wg0
good linerate client add router --split
if grep -q "IPv4\|IPv6" <(grep -v "^added" "$WORK/said"); then fail "a client that sends only what is for the server's networks: $(cat "$WORK/said")"; fi

say "the default route is a router's advertisement that comes after up"
restarted() { # the server, without a default route, and the laptop, which would use its old session else
  laptop down
  good linerate down wg0
  ip -n h1 -6 route flush default
  good linerate up wg0
}
restarted
said "what is missing" "no default route, so nothing is forwarded until it has one"
ip -n h1 -6 route add default via 2001:db8:1::1 proto ra
laptop up
wait_for 20 "IPv6 to be forwarded" at laptop ping -n -c 1 -W 1 2001:db8:3::2
healthy "an advertised default route" h1 wg0
say "if another link may be the uplink, the advertised route is not used; the doctor's remedy works"
cable h1 e9 web w9
restarted
ip -n h1 -6 route add default via 2001:db8:1::1 proto ra
laptop up
sleep 2
pings laptop "$(sed -n 's/^Address.* \(fd[0-9a-f:]*\):.*/\1:1/p' /etc/wireguard/wg0.conf)"
no_ping laptop 2001:db8:3::2
finds "an advertised default route beside another link" h1 wg0 gateway-without-interface
tells "Gateway = e1"
sed -i "s/^#! Gateway.*/#! Gateway = e1/" /etc/wireguard/wg0.conf
good linerate reload wg0
pings laptop 2001:db8:3::2
healthy "Gateway = e1" h1 wg0
ip -n h1 link delete e9
laptop down
removed

say "IPv4 by a CLAT"
ip -n h1 -6 route replace default via 2001:db8:1::1
cable h1 clat0 web w9
address h1 clat0 192.0.0.1/32
ip -n h1 route add default dev clat0
server init --no-start
said "the server's endpoint" "clients reach it at \[2001:db8:1::5\]:51820"
