# Addresses, MTU, routes, rules and the firewall.

# --- addresses
addresses() { # LIST
  tunnel 10.9.0.0/16 "Address = $1"
  "${WORD:-same}" "addresses: $1"
}
# The words have the length, and the address as it is written.
WORD=alike addresses 10.0.0.2
WORD=alike addresses fd00::2
WORD=alike addresses "FD00::00a2/64, 2001:db8:0:0:1::/80"
addresses 10.0.0.2/24
addresses fd00::2/64
addresses "10.0.0.2/24, fd00::2/64, 10.0.1.2/32, fd00:1::2/128"
addresses "10.0.0.2/31, 10.0.0.3/31"
addresses 0.1.2.3/8
addresses "10.0.0.0/24, 10.0.0.255/24"
addresses "10.0.0.2/0"
tunnel 10.9.0.0/16 "Address = 10.0.0.2/24, 10.0.0.2/24"
ours "addresses: twice the same is once" 'quick up wg0' <<'END'
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip -4 address add 10.0.0.2/24 dev wg0
err: [#] ip link set mtu 1370 up dev wg0
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
code 0
END
tunnel 10.9.0.0/16 "Address = 192.168.1.5/24"
same "addresses: one that another link has"

# --- MTU
mtu() { # TITLE ENDPOINT... : peers at these endpoints
  local title=$1 endpoint number=0
  {
    printf "[Interface]\nAddress = 10.0.0.2/24\n"
    for endpoint in "${@:2}"; do
      number=$((number + 1))
      printf "[Peer]\nPublicKey = %s\nAllowedIPs = 10.9.$number.0/24\nEndpoint = $endpoint\n" "$(head -c 31 <(printf "%031d" $number) | cat - <(printf A) | base64)"
    done
  } | file wg0.conf
  "${WORD:-same}" "MTU: $title" ${SCRIPT:+"$SCRIPT"}
}
tunnel 10.9.0.0/16 "MTU = 1234"
same "MTU: given"
tunnel 10.9.0.0/16 "MTU = 1280" "Address = fd00::1/64"
same "MTU: given, the smallest for IPv6"
tunnel 10.9.0.0/16 "MTU = 65535"
same "MTU: given, the largest"
mtu "of the link to the endpoint" 198.51.100.1:5
mtu "of the route to the endpoint" 203.0.113.9:5
mtu "of the link to an IPv6 endpoint" '[2001:db8:1::9]:5'
# The original takes the MTU of the loopback, which no path behind the program that listens there has.
for endpoint in 127.0.0.1:5 192.168.1.5:5; do
  WORD=ours SCRIPT='quick up wg0' mtu "to this host, $endpoint" "$endpoint" <<END
\$ wg-quick up wg0
err: Warning: the endpoint $endpoint is on this host, so the path behind it is not known: the MTU 1370 leaves room for the headers of WireGuard alone. If the program that listens there adds its own, set MTU to as much less
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip -4 address add 10.0.0.2/24 dev wg0
err: [#] ip link set mtu 1370 up dev wg0
err: [#] ip -4 route add 10.9.1.0/24 dev wg0
code 0
END
done
mtu "without endpoints"
BEFORE='ip route del default'
mtu "without endpoints and default route"
BEFORE='ip route del default; ip route add default via 192.168.1.1 mtu 1400'
mtu "of the default route"
# The original lets `ip route get` complain.
BEFORE='ip route del default'
WORD=alike mtu "without a way to the endpoint" 198.51.100.1:5
BEFORE='ip route add unreachable 198.51.100.0/24'
WORD=alike mtu "with a route that refuses" 198.51.100.1:5
BEFORE='ip link set eth0 mtu 1500'
mtu "of Ethernet" 198.51.100.1:5
BEFORE='ip link set eth0 mtu 9000'
mtu "of large frames" 198.51.100.1:5
BEFORE='ip route add table 7 default via 192.168.1.1 mtu 1333; ip rule add to 198.51.100.0/24 table 7'
mtu "of a route that a rule leads to" 198.51.100.1:5
BEFORE='ip route del default; ip route add default via 192.168.1.7 metric 5; ip route add default via 192.168.1.8 metric 4 mtu 1333'
mtu "of the better of two default routes"
# The installed version took the largest.
{
  printf "[Interface]\n[Peer]\nPublicKey = $PEER\nEndpoint = 198.51.100.1:5\n[Peer]\nPublicKey = $OTHER\nEndpoint = 203.0.113.9:5\n"
} | file wg0.conf
ours "MTU: of several endpoints the smallest counts" 'quick up wg0' <<'END'
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1232 up dev wg0
code 0
END

# --- routes
routes() { # TITLE ALLOWED-IPS [LINE]...
  tunnel "$2" "Address = 10.0.0.2/24, fd00::2/64" "${@:3}"
  "${WORD:-same}" "routes: $1"
}
routes "one" 10.9.0.0/16
routes "of both families" "10.9.0.0/16, fd01::/48"
routes "that the interface has by its addresses" "10.0.0.0/24, fd00::/64"
routes "within those that the interface has" "10.0.0.7/32, fd00::7/128, 10.0.0.128/25"
routes "around those that the interface has" "10.0.0.0/16, fd00::/16"
routes "nested" "10.8.0.0/13, 10.9.0.0/16, 10.9.1.0/24, 10.9.1.1/32"
routes "of one length" "10.1.0.0/16, 10.12.0.0/16, 10.2.0.0/16, fd01::/16, 172.16.0.0/16, fd10::/16"
routes "in odd notations" "10.9.0.1, fd01:0:0:0::1/128, FD02::/16"
routes "to many and to itself" "224.0.0.0/4, 255.255.255.255/32, 127.0.0.0/8, fe80::/64, ff00::/8"
routes "not wanted" "10.9.0.0/16, 0.0.0.0/0, ::/0" "Table = off"
# The words have the number of the table, and nothing for the main one.
WORD=alike routes "to the main table by name" 10.9.0.0/16 "Table = main"
routes "by themselves" "10.9.0.0/16, ::/0" "Table = auto"
routes "in a table" "10.9.0.0/16, fd01::/48, 10.0.0.0/24" "Table = 123"
routes "in a table, the default among them" "0.0.0.0/0, ::/0, 10.9.0.0/16" "Table = 123"
routes "in a table with a large number" 10.9.0.0/16 "Table = 4000000000"
WORD=alike routes "in the main table by its number" 10.9.0.0/16 "Table = 254"
WORD=alike routes "in a table in hexadecimal" 10.9.0.0/16 "Table = 0x7b"
BEFORE='echo "201 vpn # ours" >>/etc/iproute2/rt_tables'
WORD=alike routes "in a table with a name" 10.9.0.0/16 "Table = vpn"
BEFORE='ip route add 10.9.0.0/16 via 192.168.1.9 metric 50'
routes "beside one with another metric" 10.8.0.0/16
BEFORE='ip route add 10.9.0.0/16 via 192.168.1.9'
routes "within another's" 10.9.1.0/24
BEFORE='ip route add 10.9.0.0/16 via 192.168.1.9'
routes "beside another's, in a table" 10.9.0.0/16 "Table = 123"

# --- full tunnels
full() { # TITLE ALLOWED-IPS [LINE]...
  tunnel "$2" "Address = 10.0.0.2/24, fd00::2/64" "${@:3}"
  same "full tunnel: $1"
}
full "IPv4" 0.0.0.0/0
full "IPv6" ::/0
full "both" "0.0.0.0/0, ::/0"
full "both, the other way round, and other routes" "::/0, 10.9.0.0/16, 0.0.0.0/0, fd01::/48, 10.0.0.0/24"
printf "[Interface]\nAddress = 10.0.0.2/24\n[Peer]\nPublicKey = $PEER\nAllowedIPs = 0.0.0.0/1, 128.0.0.0/1\n" | file wg0.conf
same "full tunnel: in halves is none, without an endpoint"
tunnel 128.0.0.0/1
ours "full tunnel: in halves, the one with the endpoint gets a table" 'quick up wg0; quick down wg0' <<'END'
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1370 up dev wg0
err: [#] wg set wg0 fwmark 51820
err: [#] ip -4 rule add not fwmark 51820 table 51820
err: [#] ip -4 rule add table main suppress_prefixlength 1
err: [#] ip -4 route add 128.0.0.0/1 dev wg0 table 51820
err: [#] sysctl -q net.ipv4.conf.all.src_valid_mark=1
err: [#] nft -f FILE
code 0
$ wg-quick down wg0
err: [#] ip -4 rule delete table 51820
err: [#] ip -4 rule delete table main suppress_prefixlength 1
err: [#] ip link delete dev wg0
err: [#] nft -f FILE
code 0
END
full "with a mark of the file" "0.0.0.0/0, ::/0" "FwMark = 0x1234"
full "with a mark of the file that is off" 0.0.0.0/0 "FwMark = off"
full "with a mark of the file that is zero" 0.0.0.0/0 "FwMark = 0x0"
full "with the largest mark" 0.0.0.0/0 "FwMark = 0xffffffff"
full "by itself, said so" 0.0.0.0/0 "Table = auto"
BEFORE='ip -6 route add fd99::/64 dev eth0 table 51820; ip route add 10.99.0.0/16 dev eth0 table 51821'
full "where its tables are taken" "0.0.0.0/0, ::/0"
BEFORE='ip rule add from 10.1.1.1 table 51820 priority 100; ip rule add from 10.1.1.2 table 123'
full "beside rules of others" 0.0.0.0/0 "FwMark = 99"
BEFORE='nft add table ip others; nft add chain ip others input; nft add rule ip others input counter drop'
full "beside a firewall" 0.0.0.0/0
{
  printf "[Interface]\nAddress = 10.0.0.2/24\n[Peer]\nPublicKey = $PEER\nAllowedIPs = 0.0.0.0/0\n[Peer]\nPublicKey = $OTHER\nAllowedIPs = ::/0, 10.9.0.0/16\n"
} | file wg0.conf
same "full tunnel: of two peers"
tunnel 0.0.0.0/0
same "full tunnel: without addresses"
tunnel 0.0.0.0/0 "Address = 10.0.0.2/24" "Address = 10.0.1.2/24" "Address = 10.0.0.3/24"
same "full tunnel: every address is guarded"
