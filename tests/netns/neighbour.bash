# Words for scenarios about hostile links, sourced after lib.sh and tunnel-files.bash: a neighbour that sends whatever a
# host on the link can send (neighbour.py), and a café, the only network of a travelling host:
#
#   h1 e1 192.168.1.5, fd01::5 ── e2 192.168.1.1, fd01::1, fe80::1 h2
#
# h2 is its router, its name server, the internet (203.0.113.7, 2001:db8:7::7) and the other end of the tunnel
# (203.0.113.2), which is wg2.

NEIGHBOUR=$(dirname "$0")/neighbour.py

mac() { ip -n "$1" -o link show "$2" | sed -nE 's/.*link\/ether ([0-9a-f:]+).*/\1/p'; } # HOST DEVICE

# Has the host send to the victim over the cable between these devices; neighbour.py documents the verbs.
neighbour() { # HOST DEVICE VICTIM DEVICE VERB [NAME=VALUE]...
  on "$1" python3 "$NEIGHBOUR" "$2" "$(mac "$3" "$4")" "${@:5}"
}
# The same in the background, for a verb that runs until it is killed; its process is $NEIGHBOUR_PID.
neighbour_goes_on() { # as neighbour
  ip netns exec "$1" python3 "$NEIGHBOUR" "$2" "$(mac "$3" "$4")" "${@:5}" >>"$SCENARIO_LOGS/neighbour.log" 2>&1 &
  NEIGHBOUR_PID=$!
}

cafe() {
  need nft python3 busybox
  host h1 h2
  cable h1 e1 h2 e2
  address h2 e2 192.168.1.1/24 fd01::1/64 fe80::1/64
  address h2 lo 203.0.113.2/32 203.0.113.7/32 2001:db8:7::7/128
  forwarding h2
  cafe_addresses
  far_end
  ENDPOINT=203.0.113.2:50002
  # The neighbour answers ARP and neighbour solicitations for all addresses.
  neighbour_goes_on h2 e2 h1 e1 answer prefix=0.0.0.0/0 prefix=2000::/3
}
cafe_addresses() { # h1 as it comes in
  ip -n h1 addr flush dev e1
  ip -n h1 -6 route flush dev e1
  address h1 e1 192.168.1.5/24 fd01::5/64 fe80::5/64
  ip -n h1 -6 route replace multicast ff00::/8 dev e1 table local metric 256
  ip -n h1 route add default via 192.168.1.1
  ip -n h1 -6 route add default via fe80::1 dev e1
}

# --- a real DHCP client --------------------------------------------------------------------------------------

# Applies a DHCP answer as the scripts of distributions do: option 121 replaces the router option (RFC 3442).
dhcp_script() {
  cat >"$WORK/dhcp" <<'SCRIPT'
#!/bin/bash
[[ $1 == bound || $1 == renew ]] || exit 0
ip -4 addr flush dev "$interface"
ip addr add "$ip/$mask" dev "$interface"
[[ -z $mtu ]] || ip link set "$interface" mtu "$mtu"
set -- $staticroutes
(($#)) || for at in $router; do set -- 0.0.0.0/0 "$at"; done
while (($#)); do
  if [[ $2 == 0.0.0.0 ]]; then ip route replace "$1" dev "$interface"; else ip route replace "$1" via "$2" dev "$interface" onlink; fi
  shift 2
done
[[ -z $dns ]] || printf 'nameserver %s\n' $dns >/etc/resolv.conf
SCRIPT
  chmod +x "$WORK/dhcp"
}
dhcp_client() { # HOST DEVICE : gets an address, and stays for renewals
  dhcp_script
  ip netns exec "$1" busybox udhcpc -f -i "$2" -s "$WORK/dhcp" -O staticroutes -O mtu -t 10 -T 1 >>"$SCENARIO_LOGS/dhcp.log" 2>&1 &
  DHCP_PID=$!
}
renew() { kill -USR1 "$DHCP_PID"; }

# --- packets that leave h1 outside the tunnel ----------------------------------------------------------------

# Counts packets that arrive at h2, except for the tunnel's datagrams, DHCP and neighbour discovery. Packets to private and
# link-local networks count as `names` (port 53 or 853) or `local`, all others as `beyond`.
watch_cafe() {
  on h2 nft -f - <<'NFT'
table inet law {
  counter beyond { }
  counter names { }
  counter local { }
  chain seen {
    type filter hook prerouting priority -300;
    iifname != "e2" return
    ip daddr 203.0.113.2 udp dport 50002 return
    udp sport 68 udp dport 67 return
    udp sport 546 udp dport 547 return
    icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } return
    ip daddr { 10.0.0.0/8, 100.64.0.0/10, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16 } jump of_link
    ip6 daddr { fc00::/7, fe80::/10 } jump of_link
    counter name beyond
  }
  chain of_link {
    meta l4proto { tcp, udp } th dport { 53, 853 } counter name names accept
    counter name local accept
  }
}
NFT
}
seen() { on h2 nft list counter inet law "$1" | awk '/packets/ { print $2 }'; } # COUNTER
forget_seen() { on h2 nft reset counters table inet law >/dev/null; }
PUBLIC=(203.0.113.7 8.8.8.8 2001:db8:7::7 3fff::7)
LOCAL=(192.168.1.1 fd01::1)
programs() { on h1 python3 "$NEIGHBOUR" e1 - programs "$@"; } # ADDRESS... : has programs send to them
# Checks that nothing leaves outside the tunnel, whatever programs send.
nothing_leaves() { # WHEN
  forget_seen
  programs "${PUBLIC[@]}" "${LOCAL[@]}"
  sleep 0.3
  expect "$1: packets outside the tunnel, and queries to the name server" "0 0" "$(seen beyond) $(seen names)"
}
