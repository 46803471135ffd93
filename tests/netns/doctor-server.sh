#!/usr/bin/env bash
# timeout: 120
# doctor finds nothing on healthy servers of one family, and that the gateway's interface is not there after a host has changed.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
source "$(dirname "$0")/doctor.bash"
need jq
has_original || skip "wg-quick or wireguard-go is not installed"

laptop() { # up | down
  WG_QUICK_USERSPACE_IMPLEMENTATION=$ENGINE PATH=$WORK/bin:$PATH at laptop timeout 60 "$WORK/bin/wg-quick" "$1" "$WORK/wg9.conf" >>"$SCENARIO_LOGS/said.log" 2>&1
}
client() {
  at h1 "$LINERATE" client add laptop >"$WORK/wg9.conf" 2>>"$SCENARIO_LOGS/said.log"
  chmod 600 "$WORK/wg9.conf"
}
works() { # WHAT ADDRESS
  healthy "$1" h1 wg0
  laptop up
  pings laptop "$2"
  healthy "$1, with a client" h1 wg0
  laptop down
}

internet
say "IPv4 only"
ip -n h1 -6 route delete default
ip -n h1 -6 address flush dev e1 scope global
server init
healthy "a server for IPv4 without clients" h1 wg0
client
works "a server for IPv4" 198.51.100.2
server remove --yes
server init --pool 10.7.0.0/24 --endpoint 203.0.113.5
client
works "a server for IPv4 with a pool of its own" 198.51.100.2
server remove --yes
is_gone wg0

say "IPv4 only, and the host has no IPv6"
on h1 sysctl -qw net.ipv6.conf.{all,default,e1}.disable_ipv6=1
server init
client
works "a server on a host without IPv6" 198.51.100.2
server remove --yes
on h1 sysctl -qw net.ipv6.conf.{all,default,e1}.disable_ipv6=0
address h1 e1 2001:db8:1::5/64
ip -n h1 -6 route add default via 2001:db8:1::1

say "a file of another host: its gateway has an interface that is not here"
server init
client
good linerate down wg0
gateway() { sed -i '/^#! Gateway/d; s/^\[Interface\]/&\n#! Gateway = '"$1"'/' /etc/wireguard/wg0.conf; }
for names in eth7 "eth7, eth8"; do
  gateway "$names"
  good linerate up wg0
  said "what up says" "there is no interface eth7"
  finds "Gateway = $names" h1 wg0 gateway-interface-missing
  tells '#! Gateway = auto. in .*wg0.conf'
  laptop up
  no_ping laptop 198.51.100.2
  gateway auto
  good linerate reload wg0
  pings laptop 198.51.100.2
  healthy "Gateway = $names, and then auto" h1 wg0
  laptop down
  good linerate down wg0
done
gateway "e1, eth7"
good linerate up wg0
finds "one that is the uplink, and one that is not there" h1 wg0 gateway-interface-missing
expect "its status" 0 "$STATUS"
good linerate down wg0

say "the uplink changes its name"
gateway e1
good linerate up wg0
healthy "Gateway = e1" h1 wg0
ip -n h1 link set e1 down
ip -n h1 link set e1 name ens18
ip -n h1 link set ens18 up
address h1 ens18 2001:db8:1::5/64
ip -n h1 route add default via 203.0.113.1
ip -n h1 -6 route add default via 2001:db8:1::1
finds "that name is gone" h1 wg0 gateway-interface-missing
tells "the default route leads over ens18"
gateway auto
good linerate reload wg0
works "Gateway = auto" 198.51.100.2
