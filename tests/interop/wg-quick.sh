#!/usr/bin/env bash
# timeout: 90
# The real wg-quick, with our daemon as its userspace implementation: up, use, reload, save and down; a full tunnel.
source "$(dirname "$0")/../netns/lib.sh"
need wg-quick

two_hosts
key h1 h2
daemon h2 wg2
on h2 wg set wg2 listen-port 50002 private-key "$WORK/h2.key" peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128
wg_address h2 wg2 10.9.0.2/24 fd09::2/64

mount -t tmpfs -o mode=0700 tmpfs /etc/wireguard 2>/dev/null || skip "there is no /etc/wireguard to put a tmpfs on"
# wg-quick turns to a daemon only where the kernel has no WireGuard. This hides the kernel's, where there is one.
# (`ip netns exec` would mount a new /sys, so wg-quick is run with nsenter.)
mount -t tmpfs tmpfs /sys/module
mkdir "$WORK/bin"
cat >"$WORK/bin/ip" <<IP
#!/bin/bash
[[ "\$*" == "link add "*" type wireguard" ]] && exit 2
exec $(type -P ip) "\$@"
IP
chmod +x "$WORK/bin/ip"
cp "$(type -P wg-quick)" "$WORK/bin/wg-quick" # it puts its own folder first in PATH
quick() {
  WG_QUICK_USERSPACE_IMPLEMENTATION=$(basename "$TUNNEL_DAEMON") PATH=$WORK/bin:$(dirname "$TUNNEL_DAEMON"):$PATH \
    nsenter --net=/run/netns/h1 timeout 30 "$WORK/bin/wg-quick" "$@" >"$SCENARIO_LOGS/wg-quick.log" 2>&1 ||
    fail "wg-quick $*: $(tail -n 5 "$SCENARIO_LOGS/wg-quick.log" | tr '\n' ' ')"
  say "wg-quick $*: ok"
}
configuration() { # FILE ALLOWED-IPS [INTERFACE LINES...]
  (umask 077 && cat >"/etc/wireguard/$1.conf") <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.9.0.1/24, fd09::1/64
ListenPort = 50001
$(printf '%s\n' "${@:3}")
[Peer]
PublicKey = $(public h2)
Endpoint = 192.0.2.2:50002
AllowedIPs = $2
CONF
}
no_link() { ! ip -n h1 link show "$1" >/dev/null 2>&1; }
down() {
  quick down wg1
  wait_for 5 "wg1 to go" no_link wg1
  wait_for 5 "its socket to go" eval '[[ ! -e /run/wireguard/wg1.sock ]]'
  expect "rules and tables that are left" "" "$(on h1 ip rule show | grep -v 'lookup \(local\|main\|default\)' || true)$(on h1 nft list tables || true)"
}

say "a plain tunnel"
configuration wg1 10.9.0.2/32,fd09::2/128 "PostUp = echo %i is up >$WORK/hook" "PreDown = echo %i goes >$WORK/hook"
quick up wg1
expect "the hook" "wg1 is up" "$(cat "$WORK/hook")"
expect "MTU" 1420 "$(on h1 cat /sys/class/net/wg1/mtu)"
pings h1 10.9.0.2
pings h2 fd09::1

say "a reload without a gap: wg syncconf with what wg-quick strips"
(on h1 ping -n -q -i 0.02 -c 120 -W 3 10.9.0.2 >"$WORK/steady" || true) &
steady=$!
sleep 0.3
on h1 wg syncconf wg1 <(PATH=$WORK/bin:$PATH "$WORK/bin/wg-quick" strip wg1)
wait $steady
grep -q ' 0% packet loss' "$WORK/steady" || fail "pings during the reload: expected 0% packet loss, saw $(grep loss "$WORK/steady")"
quick save wg1
grep -q "^Endpoint = 192.0.2.2:50002" /etc/wireguard/wg1.conf || fail "the saved configuration lacks the endpoint"
down
expect "the hook" "wg1 goes" "$(cat "$WORK/hook")"

say "up and down again, three times"
for _ in 1 2 3; do
  quick up wg1
  pings h1 10.9.0.2
  down
done

say "everything through the tunnel"
on h2 wg set wg2 peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128
address h2 lo 203.0.113.7/32 2001:db8:7::7/128
ip -n h1 route add default via 192.0.2.2
count h2 in inside iifname wg2 ip daddr 203.0.113.7
configuration wg1 0.0.0.0/0,::/0
quick up wg1
pings h1 203.0.113.7
pings h1 2001:db8:7::7
expect "pings that came through the tunnel" 3 "$(counted h2 inside)"
pings h1 192.0.2.2 # the cable itself stays reachable beside it
expect "fwmark" 0xca6c "$(on h1 wg show wg1 fwmark)"
down
pings h1 203.0.113.7
expect "pings that came through the tunnel" 3 "$(counted h2 inside)"
