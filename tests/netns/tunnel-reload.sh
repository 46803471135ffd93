#!/usr/bin/env bash
# timeout: 90
# `reload` applies what the file changed, of all kinds, while pings every 10 ms go on: none is lost, nothing else changes.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
ip -n h1 route add default via 192.0.2.2
ip -n h1 -6 route add default via 2001:db8::2
echo "nameserver 192.0.2.54" >"$WORK/etc/resolv.conf"
on h2 wg set wg2 peer "$(public h1)" allowed-ips 10.9.0.1/32,10.9.0.11/32,fd09::1/128,fd09::11/128
address h2 lo 203.0.113.7/32 2001:db8:7::7/128
key h3 h4
daemon lan wg4
on lan wg set wg4 listen-port 50004 private-key "$WORK/h3.key" peer "$(public h1)" allowed-ips 10.9.0.1/32
wg_address lan wg4 10.8.0.2/24
ip -n lan route add 10.9.0.1 dev wg4

# The file: what stays, and what a part of the scenario changes.
allowed=10.9.0.2/32,fd09::2/128
address="10.9.0.1/24, fd09::1/64"
interface=() peer=() more=
write_file() {
  (umask 077 && cat >/etc/wireguard/wg1.conf) <<CONF
# The tunnel to h2
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = $address
$(printf '%s\n' "${interface[@]}")
[Peer]
# Name = h2
PublicKey = $(public h2)
Endpoint = 192.0.2.2:50002
AllowedIPs = $allowed
$(printf '%s\n' "${peer[@]}")
$more
CONF
}
peer_of_h3="
[Peer]
PublicKey = $(public h3)
Endpoint = 192.168.77.2:50004
AllowedIPs = 10.8.0.2/32"

seconds_of_handshake() { handshake_time h1 wg1 h2; }
reload() { # WHAT : the changed file is taken over, and a second time there is nothing to do
  write_file
  good linerate reload wg1
  said "$1" "changed, .* taken on the host"
  good linerate reload wg1
  said "$1, again" "nothing has changed"
  expect "$1: the handshake" "$handshake" "$(seconds_of_handshake)"
  expect_at_least "$1: bytes received" "$bytes" "$(received h1 wg1 h2)"
  bytes=$(received h1 wg1 h2)
}
dns() { grep -c '^nameserver 192.0.2.53' "$WORK/etc/resolv.conf" || true; }
mtu() { on h1 cat /proc/sys/net/ipv6/conf/wg1/mtu; }
has_address() { ip -n h1 addr show dev wg1 | grep -c "inet6* $1" || true; }
way_to() { ip -n h1 route get "$1" | awk '{ for (i = 1; i < NF; i++) if ($i == "dev") { print $(i + 1); exit } }'; }

remember
write_file
good linerate up wg1
pings h1 10.9.0.2
pings h1 fd09::2
handshake=$(seconds_of_handshake) bytes=$(received h1 wg1 h2)

say "what runs and what was set by hand"
# The other end is another now: h1 knows it by a roam.
on h2 wg set wg2 listen-port 50012
pings h2 10.9.0.1
expect "the endpoint after a roam" 192.0.2.2:50012 "$(endpoint h1 wg1 h2)"
on h1 wg set wg1 peer "$(public h4)" allowed-ips 10.7.0.0/24
on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 25
ip -n h1 route add 198.18.7.0/24 dev wg1
ip -n h1 addr add 10.66.0.1/32 dev wg1
port=$(on h1 wg show wg1 listen-port)

# From the addresses that stay: IPv6 would prefer the newest, and replies to a removed one are lost.
{ on h1 ping -n -D -i 0.01 -W 3 -I 10.9.0.1 10.9.0.2 >"$WORK/steady4" 2>&1 || true; } &
{ on h1 ping -n -D -i 0.01 -W 3 -I fd09::1 fd09::2 >"$WORK/steady6" 2>&1 || true; } &

good linerate reload wg1
said "an unchanged file" "nothing has changed"

more=$peer_of_h3
reload "a peer more"
pings h1 10.8.0.2
more=${peer_of_h3/10.8.0.2\/32/10.8.0.0\/24}
reload "its allowed IPs"
expect "its allowed IPs" 10.8.0.0/24 "$(of_peer h1 wg1 allowed-ips h3 2)"
pings h1 10.8.0.2
expect "routes to it" "10.8.0.0/24 scope link " "$(ip -n h1 route show dev wg1 | grep ^10.8)"
peer=("PersistentKeepalive = 13")
reload "the keepalive"
expect "the keepalive" 13 "$(of_peer h1 wg1 persistent-keepalive h2 2)"
more=
reload "a peer less"
expect "peers" 2 "$(on h1 wg show wg1 peers | wc -l)"
expect "routes to it" "" "$(ip -n h1 route show dev wg1 | grep ^10.8 || true)"

interface=("MTU = 1380")
reload "the MTU"
expect "the MTU" 1380 "$(mtu)"
interface=()
reload "no MTU"
expect "the MTU" 1420 "$(mtu)"
interface=("DNS = 192.0.2.53")
reload "name servers"
expect "its name servers" 1 "$(dns)"
interface=()
reload "no name servers"
expect "the name servers" "nameserver 192.0.2.54" "$(cat "$WORK/etc/resolv.conf")"
address="10.9.0.1/24, 10.9.0.11/24, fd09::1/64, fd09::11/64"
reload "more addresses"
pings h1 10.9.0.2 -I 10.9.0.11
pings h1 fd09::2 -I fd09::11
address="10.9.0.1/24, fd09::1/64"
reload "fewer addresses"
expect "an address of before" 0 "$(has_address 10.9.0.11)"
allowed+=,203.0.113.0/24
reload "a route"
pings h1 203.0.113.7
allowed=10.9.0.2/32,fd09::2/128
reload "no route"
expect "the way there" e1 "$(way_to 203.0.113.7)"

say "everything through the tunnel, and not any more"
count h2 in inside iifname wg2 ip daddr 203.0.113.7
count h2 in inside6 iifname wg2 ip6 daddr 2001:db8:7::7
allowed=0.0.0.0/0,::/0
reload "a full tunnel"
pings h1 203.0.113.7
pings h1 2001:db8:7::7
interface=("#! KillSwitch = true")
reload "a kill switch"
pings h1 203.0.113.7
no_ping h1 192.168.77.2 -I lan1 # a link's own address does not help
interface=("#! ExcludedIPs = 192.168.77.0/24" "#! KillSwitch = true")
reload "with an exception"
pings h1 192.168.77.2
interface=()
reload "no kill switch"
allowed=10.9.0.2/32,fd09::2/128
reload "no full tunnel"
pings h1 203.0.113.7
expect "pings that came through the tunnel" "6 3" "$(counted h2 inside) $(counted h2 inside6)"
expect "rules that are left" "" "$({ ip -n h1 -4 rule && ip -n h1 -6 rule; } | grep 'fwmark\|suppress' || true)"

say "what runs and what was set by hand is still there"
expect "the endpoint" 192.0.2.2:50012 "$(endpoint h1 wg1 h2)"
expect "the port" "$port" "$(on h1 wg show wg1 listen-port)"
expect "a peer of somebody else's" 10.7.0.0/24 "$(of_peer h1 wg1 allowed-ips h4 2)"
expect "a route of somebody else's" 1 "$(ip -n h1 route show dev wg1 | grep -c ^198.18.7.0/24)"
expect "an address of somebody else's" 1 "$(has_address 10.66.0.1)"

say "a file with a mistake, and one that the kernel refuses"
before=$(state && on h1 wg showconf wg1)
address="10.9.0.1/24, 10.9.0.21/24, fd09::1/64, ff02::5/64" more=$peer_of_h3
write_file
bad linerate reload wg1
said "an address that the kernel refuses" "ff02::5"
[[ $(state && on h1 wg showconf wg1) == "$before" ]] || fail "a reload that was refused has changed: $(diff <(echo "$before") <(state && on h1 wg showconf wg1) | tr '\n' ' ')"
address="10.9.0.1/24, 10.9.0.300/24"
write_file
bad linerate reload wg1
said "a mistake" "wg1.conf:[0-9]+:[0-9]+: .*10.9.0.300"
[[ $(state && on h1 wg showconf wg1) == "$before" ]] || fail "a reload that was refused has changed something"

say "the pings"
pkill -INT -x ping
wait_for 5 "the pings to end" eval "! pgrep -x ping"
for family in 4 6; do
  summary=$(grep loss "$WORK/steady$family")
  expect_at_least "pings over IPv$family" 100 "${summary%% *}"
  # The last of them may be on their way when ping ends, for half a second on a busy machine.
  unanswered=$(awk -F'icmp_seq=' -v sent="${summary%% *}" 'NF > 1 { seen[$2 + 0] } END { for (i = 1; i <= sent - 50; i++) if (!(i in seen)) printf "%d ", i }' \
    "$WORK/steady$family" | head -c 300)
  expect "pings over IPv$family that were not answered" "" "$unanswered"
  say "pings over IPv$family: $summary"
done

ip -n h1 route delete 198.18.7.0/24 dev wg1
good linerate down wg1
is_gone wg1
as_before "down after all these"
