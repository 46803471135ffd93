#!/usr/bin/env bash
# timeout: 120
# KillSwitch with ExcludeLAN: whatever a router advertisement or a DHCP answer puts on the link, outside the tunnel packets
# leave only to private and link-local addresses. It comes before `up`, before `reload` or in between; the daemon may be dead.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/neighbour.bash"

cafe
watch_cafe
PUBLIC+=(11.0.0.7 192.0.5.7 172.99.0.7 100.9.0.7 169.200.0.7)
has_route() { ip -n h1 route show dev e1 | grep -q "^$1 " || ip -n h1 -6 route show dev e1 | grep -q "^$1 "; } # PREFIX
says() { # PREFIX... : each is on the link, says an advertisement
  local prefix
  neighbour h2 e2 h1 e1 ra "${@/#/prefix=}"
  for prefix; do wait_for 5 "the route to $prefix" has_route "$prefix"; done
}
file() { tunnel_file wg1 0.0.0.0/0,::/0 "#! KillSwitch = true" "#! ExcludeLAN = true"; }
changed() { sed -i "s|^Address|#! ExcludedIPs = 198.51.100.$((++changes))\n&|" /etc/wireguard/wg1.conf; }
changes=0
offer() { printf '%s\n' address=192.168.1.5/24 router=192.168.1.1 dns=192.168.1.1 "$@" >"$WORK/offer"; }
away() { # WHO
  good "$1" down wg1
  is_gone wg1
  cafe_addresses
}
holds() { # WHAT : with the daemon and without
  nothing_leaves "$1"
  kill_daemon
  nothing_leaves "$1, without the daemon"
}

for who in linerate wg-quick; do
  say "$who: an advertisement before up"
  file
  says 2000::/3 f000::/4
  good $who up wg1
  pings h1 192.168.1.1
  pings h1 fd01::1
  holds "$who: an advertisement before up"
  said "the prefix that is not excluded" "2000::/3"
  away $who

  say "$who: an advertisement while the tunnel is up, and a changed file"
  good $who up wg1
  pings h1 10.9.0.2
  says 2000::/3 2001:db8:7::/64
  nothing_leaves "$who: an advertisement while it is up"
  changed
  good linerate reload wg1
  holds "$who: an advertisement before a reload"
  away $who

  say "$who: the mask 128.0.0.0 of a DHCP server, and others"
  for address in 192.168.1.5/1 10.0.0.5/7 192.168.1.5/8 172.16.1.5/8 100.64.1.5/8 169.254.1.5/8 203.0.113.5/24; do
    ip -n h1 addr flush dev e1
    file
    address h1 e1 "$address" fd01::5/64
    good $who up wg1
    nothing_leaves "$who: the address $address"
    away $who
  done

  say "$who: a DHCP server, with renewals while the tunnel is up"
  offer
  neighbour_goes_on h2 e2 h1 e1 dhcp file="$WORK/offer" server=192.168.1.1 lease=3600
  ip -n h1 addr flush dev e1
  address h1 e1 fd01::5/64
  dhcp_client h1 e1
  wait_for 10 "an address" has_route 192.168.1.0/24
  file
  good $who up wg1
  pings h1 10.9.0.2
  pings h1 192.168.1.1
  nothing_leaves "$who: a DHCP server that says what it should"
  offer address=192.168.1.5/1
  renew
  wait_for 10 "the route of the mask" has_route 128.0.0.0/1
  nothing_leaves "$who: another mask at a renewal"
  changed
  good linerate reload wg1
  nothing_leaves "$who: another mask before a reload"
  offer route=0.0.0.0/1,0.0.0.0 route=128.0.0.0/2,0.0.0.0 route=192.0.0.0/2,192.168.1.1
  renew
  wait_for 10 "the routes of option 121" has_route 128.0.0.0/2
  nothing_leaves "$who: option 121 at a renewal"
  changed
  good linerate reload wg1
  holds "$who: option 121 before a reload"
  kill "$DHCP_PID" "$NEIGHBOUR_PID"
  away $who
done
