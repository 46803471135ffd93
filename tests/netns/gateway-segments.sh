#!/usr/bin/env bash
# timeout: 120
# TCP passes a gateway whose tunnel is narrower than both ends believe, where no ICMP message tells them.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"

need nft nc
gateway_hosts
routes_back
# A network behind c1 is the end of the connections: c1's own would know of the MTU of its tunnel.
host behind
cable c1 b1 behind b0
address c1 b1 10.7.0.1/24 fd07::1/64
address behind b0 10.7.0.2/24 fd07::2/64
forwarding c1
ip -n behind route add default via 10.7.0.1
ip -n behind -6 route add default via fd07::1
ip -n inet route add 10.7.0.0/24 via 203.0.113.1
ip -n inet -6 route add fd07::/64 via 2001:db8:113::1
# Nobody says that a packet is too big.
for name in h1 c1; do
  on "$name" nft -f - <<'NFT'
table inet silence {
  chain output { type filter hook output priority 0; icmp type destination-unreachable drop; icmpv6 type packet-too-big drop; }
}
NFT
done
PEER_LINE[c1]="AllowedIPs = 10.7.0.0/24, fd07::/64"
gateway_file "MTU = 1300" "#! Gateway = off"
good linerate up wg1
forwarding h1
new_sessions
pings behind 198.18.0.1
PORT=7071 # another one each time: the server of a connection that does not pass goes on to listen
passes() { # FROM TO SERVER [SECONDS] : whether 200 KB go from one to the other
  PORT=$((PORT + 1))
  on "$3" timeout 30 nc -l "$2" "$PORT" </dev/null >"$WORK/got.$PORT" &
  wait_for 5 "nc to listen" listens "$3" "$PORT"
  head -c 200000 /dev/zero | on "$1" timeout "${4:-20}" nc -N "$2" "$PORT" >/dev/null || return 1
  wait_for 5 "the last of the data" eval '(($(stat -c %s "$WORK/got.$PORT") == 200000))'
}
! passes inet 10.7.0.2 behind 3 || fail "the path is not narrow: nothing is shown here"
on h1 sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0
gateway_file "MTU = 1300" "#! Gateway = up0" "#! Inbound = all"
good linerate reload wg1
passes inet 10.7.0.2 behind || fail "IPv4 into the tunnel does not pass"
passes inet fd07::2 behind || fail "IPv6 into the tunnel does not pass"
passes behind 198.18.0.1 inet || fail "IPv4 out of the tunnel does not pass"
passes behind 2001:db8:18::1 inet || fail "IPv6 out of the tunnel does not pass"
say "connections pass in both directions"
good linerate down wg1
