#!/usr/bin/env bash
# D4, D5: down takes away the tunnel's own rules and no other: not another tunnel's, not one whose number is alike.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
key h3
daemon h2 wg4
on h2 wg set wg4 listen-port 50004 private-key "$WORK/h3.key" peer "$(public h1)" allowed-ips 10.8.0.1/32
wg_address h2 wg4 10.8.0.2/24
address h2 lo 203.0.113.7/32
wait_for 5 "wg4 to open its port" listens_udp h2 50004
count h2 in inside iifname wg2 ip daddr 203.0.113.7

way_to() { ip -n h1 route get "$1" | awk '{ for (i = 1; i < NF; i++) if ($i == "dev") { print $(i + 1); exit } }'; }

say "D4: two full tunnels, of which one goes down"
tunnel_file wg1 0.0.0.0/0
(umask 077 && cat >/etc/wireguard/wg3.conf) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.8.0.1/24
[Peer]
PublicKey = $(public h3)
Endpoint = 192.0.2.2:50004
AllowedIPs = 0.0.0.0/0
CONF
if has_original; then
  good original up wg1
  good original up wg3
  expect "the original: the way to the LAN" lan1 "$(way_to 192.168.77.2)"
  good original down wg3
  expect "the original: the way to the LAN when one of two is down" wg1 "$(way_to 192.168.77.2)"
fi
for who in wg-quick linerate; do
  new_h1
  remember
  good $who up wg1
  cp "$WORK/before" "$WORK/before-all"
  remember
  good $who up wg3
  pings h1 10.8.0.2
  pings h1 192.168.77.2
  good $who down wg3
  is_gone wg3
  as_before "$who down of one of two"
  pings h1 203.0.113.7
  pings h1 192.168.77.2
  good $who up wg3
  good $who down wg1
  is_gone wg1
  pings h1 10.8.0.2
  pings h1 192.168.77.2
  good $who down wg3
  is_gone wg3
  mv "$WORK/before-all" "$WORK/before"
  as_before "$who down of both"
done
expect "pings that came through the tunnel" 6 "$(counted h2 inside)"

say "D5: a rule of somebody else's for table 51820, when the tunnel's is 5182"
tunnel_file wg1 0.0.0.0/0 "FwMark = 5182"
foreign() {
  new_h1
  ip -n h1 rule add priority 100 to 198.18.0.0/15 table 51820
}
if has_original; then
  foreign
  good original up wg1
  bad original down wg1
  has_link wg1 || fail "the original: expected the interface to be left, it is gone"
fi
for who in wg-quick linerate; do
  foreign
  remember
  good $who up wg1
  expect "$who: the mark" 0x143e "$(on h1 wg show wg1 fwmark)"
  pings h1 203.0.113.7
  good $who down wg1
  is_gone wg1
  as_before "$who down"
done
