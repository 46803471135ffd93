# Words for scenarios about fleets, sourced after lib.sh and tunnel-files.bash: a store, and gateways beside it.
#
#   s  10.0.0.1 (bridge): etcd      g1 10.0.0.11, g2 10.0.0.12, ...: gateways, each with files of its own
#
# A gateway's host has a mount namespace, so that all have a wg0, and /etc/wireguard, /etc/linerate, /var/lib and
# /run/{linerate,wireguard} are its own.
#
# With FLEET_FAMILY=6 all of this is IPv6, inside of the tunnels as well.

need etcd etcdctl jq
FLEET=$PROGRAMS/linerate-fleet
[[ -x $FLEET ]] || skip "there is no $FLEET (cargo build -p linerate-fleet)"
FLEET_FAMILY=${FLEET_FAMILY:-4}
if [[ $FLEET_FAMILY == 4 ]]; then
  NEAR=10.0.0. NEAR_BITS=24 SHARED=192.0.2.100 INNER=10.9.0.1 INNER_NET=10.9.0.1/24
  HOST_BITS=32 LEFT='' RIGHT=''
  near_router() { echo 10."$1"."$2"; } # NETWORK HOST : a gateway's cable to the router
  far() { echo 198.51."$1"."$2"; }     # NETWORK HOST : a client's cable to the router
else
  NEAR=fd00:10:: NEAR_BITS=64 SHARED=2001:db8::100 INNER=fd09::1 INNER_NET=fd09::1/64
  HOST_BITS=128 LEFT='[' RIGHT=']'
  near_router() { echo "fd00:$1::${2#*.}"; }
  far() { echo "2001:db8:$1::$2"; }
fi
SHARED_ENDPOINT=$LEFT$SHARED$RIGHT:51820
STORE=http://$LEFT${NEAR}1$RIGHT:2379
OF_ETCD=() OF_ETCDCTL=() # options for TLS, say
declare -A HOLDER=() SERVICE=()
declare -A ENVIRONMENT=() # of a gateway's programs: words NAME=VALUE

gateways() { # NAME... : hosts at the store's bridge
  local name number=10
  host s "$@"
  ip -n s link add br0 type bridge
  ip -n s link set br0 up
  address s br0 "${NEAR}1/$NEAR_BITS"
  mkdir -p /etc/linerate /run/linerate /run/wireguard
  for name; do
    number=$((number + 1))
    cable "$name" e0 s "p$name"
    ip -n s link set "p$name" master br0
    address "$name" e0 "$NEAR$number/$NEAR_BITS"
    nsenter --net="/run/netns/$name" unshare --mount bash -c '
      for folder in /etc/wireguard /etc/linerate /var/lib /run/linerate /run/wireguard; do
        mount -t tmpfs -o mode=0700 tmpfs $folder
      done
      touch /run/linerate/.ready && exec sleep infinity' &
    HOLDER[$name]=$!
    wait_for 5 "the files of $name" gw "$name" test -e /run/linerate/.ready
  done
}
gw() { # HOST COMMAND...
  # shellcheck disable=SC2086
  env ${ENVIRONMENT[$1]:-} nsenter --target "${HOLDER[$1]}" --mount --net "${@:2}"
}

etcd_up() {
  ip netns exec s etcd --data-dir "$WORK/etcd" --listen-client-urls $STORE --advertise-client-urls $STORE \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster default=http://127.0.0.1:2380 "${OF_ETCD[@]}" >>"$SCENARIO_LOGS/etcd.log" 2>&1 &
  ETCD=$!
  wait_for 20 "etcd to answer" etcd_ctl endpoint health
}
etcd_down() {
  kill -KILL "$ETCD"
  wait "$ETCD" 2>/dev/null || true
}
etcd_ctl() { ETCDCTL_API=3 on s etcdctl --endpoints=$STORE --dial-timeout=1s --command-timeout=3s "${OF_ETCDCTL[@]}" "$@"; }
etcd_revision() { etcd_ctl get x -w json | jq .header.revision; }

fleet() { gw "$1" "$FLEET" "${@:2}" >>"$SCENARIO_LOGS/fleet.log" 2>&1; } # HOST COMMAND...
service_up() { # HOST [NAME] : `linerate fleet run', with its words in HOST.log; what it decides by its clock, others must not delay
  # Not by `gw': the process to be stopped is the service itself.
  # shellcheck disable=SC2086
  (exec env ${ENVIRONMENT[$1]:-} nsenter --target "${HOLDER[$1]}" --mount --net nice -n -15 "$FLEET" run "${2:-berlin}") \
    >>"$SCENARIO_LOGS/$1.log" 2>&1 &
  SERVICE[$1]=$!
}
service_down() { # HOST
  kill "${SERVICE[$1]}" 2>/dev/null || true
  wait "${SERVICE[$1]}" 2>/dev/null || true
}
said() { grep -q -- "$2" "$SCENARIO_LOGS/$1.log"; } # HOST PATTERN
of_service() { gw "$1" jq -r "$2" /run/linerate/fleet/berlin/status.json; } # HOST FILTER
is_said() { [[ $(of_service "$1" "$2") == "$3" ]]; } # HOST FILTER VALUE

tunnel_file() { # HOST [LINE...] : /etc/wireguard/wg0.conf of a server with the shared key
  { printf '%s\n' '[Interface]' "PrivateKey = $(<"$WORK/fleet.key")" "Address = $INNER_NET" 'ListenPort = 51820' \
    "#! PublicEndpoint = $LEFT$SHARED$RIGHT" "${@:2}"; } | gw "$1" tee /etc/wireguard/wg0.conf >/dev/null
  gw "$1" chmod 600 /etc/wireguard/wg0.conf
}
client_add() { gw "$1" "$LINERATE" client add "$2" >"$WORK/$2.conf" 2>>"$SCENARIO_LOGS/client.log"; } # HOST NAME
client_key() { sed -n 's/^PrivateKey = //p' "$WORK/$1.conf" | wg pubkey; }                        # NAME
client_address() { sed -n 's/^Address = //p' "$WORK/$1.conf"; }
has_peer() { gw "$1" wg show wg0 peers | grep -qxF -- "$2"; } # HOST KEY
lacks_peer() { ! has_peer "$@"; }
peers_of() { gw "$1" wg show wg0 peers | wc -l; }
has_peers() { [[ $(peers_of "$1") == "$2" ]]; } # HOST COUNT
in_file() { gw "$1" grep -q -- "$2" /etc/wireguard/wg0.conf; } # HOST PATTERN
files_are_alike() { # of g1 and g2: the peers, section by section
  diff <(gw g1 sed '1,/^$/d' /etc/wireguard/wg0.conf | grep . | sort) <(gw g2 sed '1,/^$/d' /etc/wireguard/wg0.conf | grep . | sort)
}

# Three gateways g1, g2, g3 behind the router r, which all have 192.0.2.100; r's route says whose it is.
behind_router() {
  local n
  gateways g1 g2 g3
  host r
  forwarding r
  for n in 1 2 3; do
    cable r r$n g$n u$n
    address r r$n "$(near_router $n 0.1)/$NEAR_BITS"
    address g$n u$n "$(near_router $n 0.2)/$NEAR_BITS"
    address g$n lo "$SHARED/$HOST_BITS"
    # It does not name the shared address as the source to choose.
    ip -n g$n -"$FLEET_FAMILY" route add default via "$(near_router $n 0.1)"
  done
  address_is_at 1
}
address_is_at() { ip -n r route replace "$SHARED/$HOST_BITS" via "$(near_router "$1" 0.2)"; } # NUMBER

# The fleet "berlin" of g1, g2, g3, all of which initiate for others. TUNNEL_LINES are lines of each one's file, and what is in
# the file $PEERS becomes the fleet's peers.
TUNNEL_LINES=() PEERS=/dev/null
fleet_up() { # [OPTION OF init]...
  local n how at
  etcd_up
  key fleet
  for n in 1 2 3; do
    tunnel_file g$n "${TUNNEL_LINES[@]}"
    ((n > 1)) || gw g1 tee -a /etc/wireguard/wg0.conf <"$PEERS" >/dev/null
    gw g$n nice -n -15 "$LINERATE" up wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || fail "up on g$n: $(tail -n 3 "$SCENARIO_LOGS/up.log")"
    how=join at=()
    ((n > 1)) || how=init at=(--address "$SHARED_ENDPOINT" "$@")
    fleet g$n $how berlin wg0 --store $STORE "${at[@]}" --mesh-endpoint "$LEFT${NEAR}1$n$RIGHT:51821" ||
      fail "$how: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
    gw g$n jq '.route_table = 200' /etc/linerate/fleet/berlin.json >"$WORK/berlin.json"
    gw g$n tee /etc/linerate/fleet/berlin.json <"$WORK/berlin.json" >/dev/null
    service_up g$n
  done
  for n in 1 2 3; do is_one_of_three $n; done
}
sees_all() { [[ $(of_service "$1" '[.gateway.gateways[] | select(.is_alive)] | length') == 3 ]]; }
is_one_of_three() { # NUMBER
  wait_for 20 "g$1 to see all gateways" sees_all "g$1"
  wait_for 20 "g$1 to initiate for others" is_said "g$1" .gateway.initiates true
}
# All processes of a gateway but what holds its namespaces.
all_of() { ip netns pids "g$1" | grep -vx "${HOLDER[g$1]}" | grep -vx "$(pgrep -P "${HOLDER[g$1]}" || echo none)"; } # NUMBER
gateway_killed() { # NUMBER : kill -9 of all that it runs
  local killed
  mapfile -t killed < <(all_of "$1")
  kill -KILL "${killed[@]}"
}
# The threads of a killed program may have its sockets for a moment after it is gone.
nothing_of() { ! all_of "$1" >/dev/null && [[ -z $(gw "g$1" ss -Hlun sport = :51820 or sport = :51821) ]]; } # NUMBER
gateway_up_again() { # NUMBER : after a kill
  wait_for 10 "what was killed on g$1 to be gone" nothing_of "$1"
  gw "g$1" ip link del wg0 2>/dev/null || true
  gw "g$1" "$LINERATE" down wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || true
  gw "g$1" nice -n -15 "$LINERATE" up wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || fail "up after a kill: $(tail -n 3 "$SCENARIO_LOGS/up.log")"
  service_up "g$1"
}
gateway_again() { # NUMBER : the same, and it initiates for others
  gateway_up_again "$1"
  is_one_of_three "$1"
}
owner() { # GATEWAY [COUNT] : the number of the one that has the sessions of so many clients (1), as that gateway sees it
  of_service "$1" '[.gateway.gateways | to_entries[] | select(.value.peers == '"${2:-1}"') | .key | tonumber + 1] | join(" ")'
}

# A client's host at r: 198.51.NETWORK.1.
client_host() { # HOST NETWORK
  host "$1"
  cable "$1" e1 r "r$1"
  address "$1" e1 "$(far "$2" 1)/$NEAR_BITS"
  address r "r$1" "$(far "$2" 254)/$NEAR_BITS"
  ip -n "$1" -"$FLEET_FAMILY" route add default via "$(far "$2" 254)"
}
# A client of the fleet, with a daemon of ours.
client_up() { # NAME HOST IFACE
  client_add g1 "$1" || fail "client add: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
  sed -n 's/^PrivateKey = //p' "$WORK/$1.conf" >"$WORK/$1.key"
  sed -n 's/^PresharedKey = //p' "$WORK/$1.conf" >"$WORK/$1.psk"
  local n
  for n in 1 2 3; do wait_for 10 "$1 on g$n" has_peer g$n "$(client_key "$1")"; done
  daemon "$2" "$3"
  client_set "$1" "$2" "$3"
  wg_address "$2" "$3" "$(client_address "$1" | sed 's,/.*,,')/${INNER_NET#*/}"
}
client_set() { # NAME HOST IFACE
  on "$2" wg set "$3" private-key "$WORK/$1.key" peer "$(public fleet)" preshared-key "$WORK/$1.psk" \
    allowed-ips "$INNER/$HOST_BITS" endpoint "$SHARED_ENDPOINT"
}

# 100 datagrams a second of the client at the host c, whose answers are in NAME.log.
stream() { # NAME
  STREAM=$1
  ip netns exec c ping -n -D -i 0.01 -s 32 "$INNER" >"$SCENARIO_LOGS/$1.log" 2>&1 &
  STREAMING=$!
}
# Waits for the last answers; leaves the longest silence in $GAP (ms) and how many were lost in $LOST.
stream_ends() {
  sleep 1
  kill -INT "$STREAMING"
  wait "$STREAMING" || true
  GAP=$(awk -F '[][]' '/bytes from/ { if (last && $2 - last > gap) gap = $2 - last; last = $2 } END { printf "%d", gap * 1000 }' "$SCENARIO_LOGS/$STREAM.log")
  # Of those up to the last that was answered: some were on their way when the stream ended.
  LOST=$(awk -F 'icmp_seq=' '/bytes from/ { seq = $2 + 0; if (!seen[seq]++) count++; if (seq > last) last = seq } END { print last - count }' "$SCENARIO_LOGS/$STREAM.log")
}
answered() { grep -c 'bytes from' "$SCENARIO_LOGS/$STREAM.log" || true; }
answers_again() { [[ $(answered) -gt $1 ]]; }
is_owner() { [[ $(owner "$1") == "$2" ]]; }                # GATEWAY NUMBER : of the only client
another() { echo $(($1 % 3 + 1)); }                        # NUMBER
counter() { of_service "$1" ".gateway.counters.$2"; }      # GATEWAY NAME

# --- many clients, of one process at the host c (linerate-fleet-clients) ---------------------------------------

FLEET_CLIENTS=$PROGRAMS/linerate-fleet-clients
# The peers of so many clients, for fleet_up, and the host c with their addresses.
many_clients() { # COUNT
  [[ -x $FLEET_CLIENTS ]] || skip "there is no $FLEET_CLIENTS (cargo build -p linerate-flood)"
  MANY=$1
  PEERS=$WORK/peers.conf
  TUNNEL_LINES=('Address = 10.64.0.1/10')
  "$FLEET_CLIENTS" --clients "$1" --sections >"$PEERS"
  client_host c 100
  ip -n c route add local 198.18.0.0/15 dev lo
  ip -n r route add 198.18.0.0/15 via 198.51.100.1
  # All of them are neighbours of nobody, but a router keeps a flow of each.
  on r sysctl -qw net.netfilter.nf_conntrack_max=1048576 2>/dev/null || true
}
# Each makes a session with the gateway that has the address, and all send 1,000 messages a second.
many_clients_up() {
  local ready
  coproc CLIENTS { ip netns exec c "$FLEET_CLIENTS" --clients "$MANY" --to "$SHARED_ENDPOINT" --gateway "$(public fleet)" 2>>"$SCENARIO_LOGS/clients.log"; }
  read -r -t 200 ready <&"${CLIENTS[0]}" || fail "the clients have ended: $(tail -n 1 "$SCENARIO_LOGS/clients.log")"
  expect "clients with sessions" "ready $MANY" "$ready"
}
# Their gateway was killed at this time: what linerate-fleet-clients says of it, in $TAKEN.
many_clients_taken() { # EPOCHREALTIME
  echo "${1/./}" >&"${CLIENTS[1]}"
  read -r -t 60 TAKEN <&"${CLIENTS[0]}" || fail "the clients have ended: $(tail -n 1 "$SCENARIO_LOGS/clients.log")"
}
knows_of() { # GATEWAY COUNT NUMBER : that gateway NUMBER has so many clients
  is_said "$1" ".gateway.gateways[\"$(($3 - 1))\"].peers" "$2"
}
