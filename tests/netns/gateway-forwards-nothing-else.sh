#!/usr/bin/env bash
# timeout: 120
# A host set up by `linerate server init` forwards only between the tunnel and its uplinks: not between an uplink and its
# other networks or other uplinks, in either direction. A router advertisement alone makes no link an uplink. Forwarding
# that the administrator had switched on before continues, in its direction only.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
source "$(dirname "$0")/neighbour.bash"

need nft jq python3
#   laptop, web - inet - e1 h1 lan1 - lan        e5 is another uplink, to `other`
internet
host lan other
lan
cable h1 e5 other o1
address h1 e5 198.18.5.5/24 2001:db8:5::5/64
address other o1 198.18.5.1/24 2001:db8:5::1/64 fe80::5/64
ip -n lan route add default via 192.168.77.1
ip -n lan -6 route add default via fd77::1
ip -n other route add default via 198.18.5.5
ip -n other -6 route add default via 2001:db8:5::5
for net in 192.168.77.0/24 198.18.5.0/24; do ip -n inet route add "$net" via 203.0.113.5; done
for net in fd77::/64 2001:db8:5::/64; do ip -n inet -6 route add "$net" via 2001:db8:1::5; done

# Counts packets from h1 over a link as forwarded unless their source is h1's address on the link; its client's are masqueraded.
watched() { # HOST DEVICE IPV4 IPV6
  count "$1" in forwarded4 iifname "$2" ip saddr != "$3"
  count "$1" in forwarded6 iifname "$2" ip6 saddr != "{ $4, fe80::/10, :: }"
}
watched inet i1 203.0.113.5 2001:db8:1::5
watched other o1 198.18.5.5 2001:db8:5::5
watched lan lan2 192.168.77.1 fd77::1
declare -A DEVICE=([inet]=i1 [other]=o1 [lan]=lan2) FACING=([inet]=e1 [other]=e5 [lan]=lan1)
declare -A IPV4=([inet]=198.51.100.2 [other]=198.18.5.1 [lan]=192.168.77.2)
declare -A IPV6=([inet]=2001:db8:3::2 [other]=2001:db8:5::1 [lan]=fd77::2)
nothing_else() { # WHEN : h1 forwards none of the packets that each neighbour sends to the others through it
  local from to what sent
  for from in inet other lan; do
    sent=()
    for to in inet other lan; do
      [[ $from != "$to" ]] || continue
      for what in "echo" "udp sport=4000 dport=4000"; do
        # shellcheck disable=SC2206 # several words
        sent+=(+ $what "from=${IPV4[$from]}" "to=${IPV4[$to]}" + $what "from=${IPV6[$from]}" "to=${IPV6[$to]}")
      done
    done
    neighbour "$from" "${DEVICE[$from]}" h1 "${FACING[$from]}" "${sent[@]:1}"
  done
  sleep 0.2
  for to in inet other lan; do
    expect "$1: packets that h1 has forwarded to $to" "0 0" "$(counted $to forwarded4) $(counted $to forwarded6)"
  done
}
uplinks() { on h1 nft -j list set inet linerate_gateway-wg0 gateways | jq -r '[.nftables[].set // empty | .elem // [] | .[]] | sort | join(" ")'; }
follows() { # WHEN UPLINK...
  wait_for 10 "$1: the uplinks to be ${*:2}" eval "[[ \$(uplinks) == '${*:2}' ]]"
  say "$1: the uplinks are ${*:2}"
}
stay() { # WHEN UPLINK... : after a reload, too
  sleep 2 # longer than the supervisor waits for route changes to settle
  expect "$1: the uplinks" "${*:2}" "$(uplinks)"
  good linerate reload wg0
  expect "$1: the uplinks after a reload" "${*:2}" "$(uplinks)"
}
client_passes() { # WHEN
  pings laptop 198.51.100.2
  pings laptop 2001:db8:3::2
}

say "one uplink, and a network besides"
server init
at h1 "$LINERATE" client add laptop >"$WORK/laptop.conf" 2>>"$SCENARIO_LOGS/said.log"
daemon laptop wg9
in_laptop() { sed -n "s/^$1 = //p" "$WORK/laptop.conf"; }
sed '/^Address\|^DNS\|^MTU\|^#/d' "$WORK/laptop.conf" | on laptop wg setconf wg9 /dev/stdin
on laptop wg set wg9 fwmark 77
# shellcheck disable=SC2046 # several addresses
wg_address laptop wg9 $(in_laptop Address | tr -d ,)
for family in -4 -6; do
  ip -n laptop $family route add default dev wg9 table 77
  ip -n laptop $family rule add not fwmark 77 table 77
done
client_passes
nothing_else "one uplink"
no_ping laptop 192.168.77.2
no_ping laptop fd77::2

say "an advertisement on another link"
for lifetime in 65535 9000; do
  neighbour lan lan2 h1 lan1 ra lifetime=$lifetime preference=high slaac=2001:db8:66::/64 route=::/1
  neighbour other o1 h1 e5 ra lifetime=$lifetime preference=high source=fe80::5 route=2000::/3
done
wait_for 5 "the routes that were advertised" eval '(($(ip -n h1 -6 route show default | grep -c "proto ra") >= 2))'
stay "advertised routes" e1
nothing_else "advertised routes"
ip -n h1 -6 route flush proto ra

say "a second default route, which is not the best"
ip -n h1 route add default via 198.18.5.1 metric 200
ip -n h1 -6 route add default via 2001:db8:5::1 metric 2000
stay "two default routes" e1
nothing_else "two default routes"
client_passes

say "the best default route of each family"
ip -n h1 -6 route add default via 2001:db8:5::1 metric 10
follows "IPv6 over another" e1 e5
nothing_else "IPv6 over another"
pings laptop 198.51.100.2
ip -n h1 route replace default via 198.18.5.1
follows "both over another" e5
nothing_else "both over another"
ip -n h1 route flush default
ip -n h1 -6 route flush default
ip -n h1 route add default via 203.0.113.1
ip -n h1 -6 route add default via 2001:db8:1::1
follows "as before" e1
client_passes
nothing_else "as before"

say "the daemon is dead, and the tunnel is up anew, beside an advertised route"
neighbour lan lan2 h1 lan1 ra lifetime=65535 preference=high slaac=2001:db8:66::/64
wait_for 5 "the route that was advertised" eval '[[ -n $(ip -n h1 -6 route show default proto ra) ]]'
kill -KILL "$(daemon_of wg0)"
is_gone wg0
nothing_else "without the daemon"
good linerate down wg0
ip -n h1 -6 route flush proto ra
good linerate up wg0
neighbour lan lan2 h1 lan1 ra lifetime=65535 preference=high slaac=2001:db8:66::/64
stay "up anew" e1
nothing_else "up anew"
ip -n h1 -6 route flush proto ra # the kernel itself prefers it
forget laptop wg9
client_passes

say "forwarding that the administrator had switched on still works: in that direction, and for answers"
good linerate down wg0
on h1 sysctl -qw net.ipv4.conf.lan1.forwarding=1 net.ipv6.conf.lan1.force_forwarding=1
good linerate up wg0
pings lan 198.51.100.2
pings lan 2001:db8:3::2
on lan nft reset counters >/dev/null
no_ping inet 192.168.77.2
no_ping inet fd77::2
expect "packets to lan that are no answers" "0 0" "$(counted lan forwarded4) $(counted lan forwarded6)"

say "a router goes on to be one"
good linerate down wg0
forwarding h1
good linerate up wg0
pings lan 198.51.100.2
pings lan 2001:db8:3::2
pings inet 192.168.77.2
pings inet fd77::2
