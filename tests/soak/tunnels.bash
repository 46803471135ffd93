# The hosts of the soak and its two tunnels, from files that the events change.

IDLE_PEERS=300

# What the events change, and the files are written from.
declare -A PORT=([wg1]=50001 [wg2]=50002 [wg3]=50003 [wg4]=50004)
declare -A AT=([e1]=192.0.2.1 [e2]=192.0.2.2 [f1]=2001:db8:3::1 [f3]=2001:db8:3::3) # underlay device: its address
declare -A KEY=([wg2]=h2 [wg4]=h3)
KEEPALIVE=5 PSK='' MORE_PEER='' MORE_ALLOWED=''

tunnels_up() {
  hosts
  key h1a h1b h2 h2-other h3 h3-other h4
  preshared a && preshared b
  random_peers $IDLE_PEERS 10.100 >"$WORK/idle"
  random_peers 200 10.101 >"$WORK/crowd"
  write_files
  local iface
  capture_initiation_of supervise h2 wg2
  supervise h1 wg1
  supervise h1 wg3
  theirs_up
  for iface in wg1 wg2 wg3; do DAEMON[$iface]=$(daemon_of $iface); done
  back 10 || fail "the tunnels do not answer after they came up"
}

hosts() {
  host h1 h2 h3 x
  cable h1 e1 h2 e2
  cable h1 f1 h3 f3
  cable h1 g1 x e4 # sends garbage, has no key
  local name
  for name in h1 h2 h3; do
    # An interface that was down has its IPv6 addresses again, and a second address stays when the first goes.
    on $name sysctl -qw net.ipv6.conf.all.keep_addr_on_down=1 net.ipv4.conf.{all,default}.promote_secondaries=1
  done
  address h1 e1 "${AT[e1]}/24" && address h2 e2 "${AT[e2]}/24"
  address h1 f1 "${AT[f1]}/64" && address h3 f3 "${AT[f3]}/64"
  address h1 g1 203.0.113.1/24 && address x e4 203.0.113.9/24
}

# The first initiation to wg1, for those who send it again.
capture_initiation_of() { # COMMAND...
  ip netns exec h2 tcpdump -i e2 -c 1 -w "$WORK/capture" -U 'udp dst port 50001 and udp[4:2] = 156' 2>"$WORK/tcpdump" &
  local capture=$!
  wait_for 5 "tcpdump" grep -q listening "$WORK/tcpdump"
  "$@"
  wait $capture
  tail -c 148 "$WORK/capture" >"$WORK/initiation"
}

# Any 43 base64 digits whose last one ends in zero bits are a public key: 42 of them are 63/2 random bytes.
random_peers() { # COUNT PREFIX : as a file has them
  head -c $(($1 * 63 / 2)) /dev/urandom | base64 -w 42 |
    awk -v prefix="$2" '{ printf "[Peer]\nPublicKey = %sA=\nAllowedIPs = %s.%d.%d/32\n", $0, prefix, NR / 250, NR % 250 }'
}

write_files() {
  {
    interface_section h1a "${PORT[wg1]}" 10.9.0.1/24,fd09::1/64
    peer_section "${KEY[wg2]}" "${AT[e2]}:${PORT[wg2]}" "10.9.0.2/32,fd09::2/128$MORE_ALLOWED" a
    [[ -z $MORE_PEER ]] || peer_section h4 192.0.2.99:50099 10.99.0.0/24
    cat "$WORK/idle"
  } | install -m 600 /dev/stdin /etc/wireguard/wg1.conf
  {
    interface_section "${KEY[wg2]}" "${PORT[wg2]}" 10.9.0.2/24,fd09::2/64
    peer_section h1a "${AT[e1]}:${PORT[wg1]}" 10.9.0.1/32,fd09::1/128 a
  } | install -m 600 /dev/stdin /etc/wireguard/wg2.conf
  {
    interface_section h1b "${PORT[wg3]}" 10.8.0.1/24,fd08::1/64
    peer_section "${KEY[wg4]}" "[${AT[f3]}]:${PORT[wg4]}" 10.8.0.2/32,fd08::2/128 b
  } | install -m 600 /dev/stdin /etc/wireguard/wg3.conf
}
interface_section() { # KEY PORT ADDRESSES
  printf '[Interface]\nPrivateKey = %s\nListenPort = %s\nAddress = %s\n' "$(cat "$WORK/$1.key")" "$2" "$3"
}
peer_section() { # KEY ENDPOINT ALLOWED-IPS [PSK]
  printf '[Peer]\nPublicKey = %s\nEndpoint = %s\nAllowedIPs = %s\nPersistentKeepalive = %s\n' "$(public "$1")" "$2" "$3" "$KEEPALIVE"
  [[ -z $PSK || -z ${4:-} ]] || printf 'PresharedKey = %s\n' "$(cat "$WORK/$4.psk")"
}

declare -A DAEMON=() # PID of our daemon of an interface; the supervisor's is PID[IFACE]
supervise() { # HOST IFACE
  at "$1" "$LINERATE" up --supervise "$2" >>"$SCENARIO_LOGS/$2.log" 2>&1 &
  PID[$2]=$!
  wait_for 10 "$2 to come up" answers "$1" "$2"
}
reload() { # IFACE...
  local iface
  write_files
  for iface; do
    at "$(host_of "$iface")" "$LINERATE" reload "$iface" >>"$SCENARIO_LOGS/said.log" 2>&1 ||
      fail "linerate reload $iface ended with $? (said.log)"
  done
}
host_of() { # IFACE
  case $1 in wg1 | wg3) echo h1 ;; wg2) echo h2 ;; wg4) echo h3 ;; esac
}

theirs_up() {
  daemon h3 wg4 wireguard-go -f
  # All at once: a handshake that begins before the preshared key is there fails.
  on h3 wg set wg4 listen-port "${PORT[wg4]}" private-key "$WORK/${KEY[wg4]}.key" \
    peer "$(public h1b)" preshared-key "$(psk_file)" allowed-ips 10.8.0.1/32,fd08::1/128 \
    endpoint "[${AT[f1]}]:${PORT[wg3]}" persistent-keepalive "$KEEPALIVE"
  wg_address h3 wg4 10.8.0.2/24 fd08::2/64
}
psk_file() { if [[ $PSK ]]; then echo "$WORK/b.psk"; else echo /dev/null; fi; }

# All eight ways through the tunnels. `back` leaves in BACK_MS how long the slowest took to answer.
WAYS=(h1/10.9.0.2 h1/fd09::2 h2/10.9.0.1 h2/fd09::1 h1/10.8.0.2 h1/fd08::2 h3/10.8.0.1 h3/fd08::1)
back() { # SECONDS
  local way pings=() begun pid
  begun=$(now_ms)
  for way in "${WAYS[@]}"; do
    answered "${way%%/*}" "${way#*/}" "$1" &
    pings+=($!)
  done
  for pid in "${pings[@]}"; do wait "$pid" || return 1; done
  BACK_MS=$(($(now_ms) - begun))
}
answered() { # HOST ADDRESS SECONDS : whether a ping gets through; one that has no way yet ends at once, so it is tried again
  local until=$(($(now_ms) + $3 * 1000))
  until ip netns exec "$1" ping -n -q -c 1 -i 0.05 -w "$3" "$2" >/dev/null 2>&1; do
    (($(now_ms) < until)) || return 1
    sleep 0.05
  done
}
