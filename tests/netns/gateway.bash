# Words for scenarios about gateways, sourced after lib.sh and tunnel-files.bash: clients, a gateway, an internet.
#
#   c1 ─┐
#       ├─ m ── h1 ── inet        m routes between the clients' networks and the gateway, so that their paths are real
#   c2 ─┘       └──── lan
#
# h1 is the gateway, whose tunnel wg1 comes from /etc/wireguard; on c1 and c2 daemons run wg3 and wg4, whose only peer
# is h1. inet knows no way back to the tunnel's addresses unless `routes_back` tells it.

gateway_hosts() {
  local n
  host h1 m c1 c2 inet
  cable h1 e1 m m1
  address h1 e1 192.0.2.1/24 2001:db8::1/64
  address m m1 192.0.2.2/24 2001:db8::2/64
  for n in 1 2; do
    cable m "to$n" "c$n" e0
    address m "to$n" "198.51.10$n.1/24" "2001:db8:10$n::1/64"
    address "c$n" e0 "198.51.10$n.2/24" "2001:db8:10$n::2/64"
    ip -n "c$n" route add default via "198.51.10$n.1"
    ip -n "c$n" -6 route add default via "2001:db8:10$n::1"
  done
  forwarding m
  cable h1 up0 inet i0
  address h1 up0 203.0.113.1/24 2001:db8:113::1/64
  address inet i0 203.0.113.9/24 2001:db8:113::9/64
  address inet lo 198.18.0.1/32 198.18.0.2/32 2001:db8:18::1/128
  host lan
  lan
  for n in 1 2; do ip -n h1 route add "198.51.10$n.0/24" via 192.0.2.2; done
  ip -n h1 -6 route add 2001:db8:100::/40 via 2001:db8::2
  ip -n h1 route add default via 203.0.113.9
  ip -n h1 -6 route add default via 2001:db8:113::9
  ip -n lan route add default via 192.168.77.1
  ip -n lan -6 route add default via fd77::1
  key h1 c1 c2
  client c1 wg3 2
  client c2 wg4 3
}

# A client's end: a full tunnel, with a route for the datagrams themselves.
client() { # HOST IFACE LAST-NUMBER
  daemon "$1" "$2"
  on "$1" wg set "$2" private-key "$WORK/$1.key" peer "$(public h1)" allowed-ips 0.0.0.0/0,::/0 endpoint 192.0.2.1:51820
  wg_address "$1" "$2" "10.9.0.$3/32" "fd09::$3/128"
  local via
  via=$(ip -n "$1" route show default | awk '{ print $3 }')
  ip -n "$1" route replace 192.0.2.0/24 via "$via"
  ip -n "$1" route add 0.0.0.0/1 dev "$2"
  ip -n "$1" route add 128.0.0.0/1 dev "$2"
  ip -n "$1" -6 route add ::/1 dev "$2"
  ip -n "$1" -6 route add 8000::/1 dev "$2"
}

new_sessions() { forget c1 wg3 && forget c2 wg4; } # after the gateway's daemon was another one

# The gateway's file: more lines for [Interface], and one for each client's [Peer].
declare -A PEER_LINE=([c1]= [c2]=)
gateway_file() { # [LINE...]
  local name number=2
  {
    printf '%s\n' "[Interface]" "PrivateKey = $(cat "$WORK/h1.key")" "Address = 10.9.0.1/24, fd09::1/64" "ListenPort = 51820" "$@"
    for name in c1 c2; do
      printf '%s\n' "[Peer]" "PublicKey = $(public "$name")" "AllowedIPs = 10.9.0.$number/32, fd09::$number/128" "${PEER_LINE[$name]}"
      number=$((number + 1))
    done
  } | (umask 077 && cat >/etc/wireguard/wg1.conf)
}

routes_back() {
  ip -n inet route replace 10.9.0.0/24 via 203.0.113.1
  ip -n inet -6 route replace fd09::/64 via 2001:db8:113::1
}
no_routes_back() {
  ip -n inet route del 10.9.0.0/24
  ip -n inet -6 route del fd09::/64
}

# What forwarding leaves on h1 besides what `state` shows.
sysctls() {
  on h1 sysctl -a 2>/dev/null | grep -E '^net\.ipv[46]\.(ip_forward|conf\.[^ ]*\.(forwarding|force_forwarding|accept_ra)) ='
}
remember_all() { remember && sysctls >"$WORK/sysctls"; }
all_as_before() { # WHEN
  as_before "$1"
  sysctls >"$WORK/sysctls-after"
  diff "$WORK/sysctls" "$WORK/sysctls-after" >"$WORK/difference" || fail "$1: sysctls are not as they were: $(tr '\n' ' ' <"$WORK/difference")"
}
sysctl_of() { on h1 sysctl -n "$1"; } # NAME

# Which address inet sees of a client that asks it.
seen_as() { # HOST ADDRESS
  on inet timeout 5 nc -ln "$2" 7070 -v </dev/null >/dev/null 2>"$WORK/seen" &
  local server=$!
  wait_for 5 "nc to listen" listens inet 7070
  on "$1" nc -w 2 "$2" 7070 </dev/null >/dev/null || true
  wait $server || true
  sed -nE 's/.*(from|received on|Connection received on) \[?([0-9a-f.:]+[0-9a-f])\]? .*/\2/p' "$WORK/seen" | tail -n 1
}
