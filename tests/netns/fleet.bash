# Words for scenarios about fleets, sourced after lib.sh and tunnel-files.bash: a store, and gateways beside it.
#
#   s  10.0.0.1 (bridge): etcd      g1 10.0.0.11, g2 10.0.0.12, ...: gateways, each with files of its own
#
# A gateway's host has a mount namespace, so that all have a wg0, and /etc/wireguard, /etc/linerate, /var/lib and
# /run/{linerate,wireguard} are its own.

need etcd etcdctl jq
FLEET=$PROGRAMS/linerate-fleet
[[ -x $FLEET ]] || skip "there is no $FLEET (cargo build -p linerate-fleet)"
STORE=http://10.0.0.1:2379
OF_ETCD=() OF_ETCDCTL=() # options for TLS, say
declare -A HOLDER=() SERVICE=()

gateways() { # NAME... : hosts at the store's bridge
  local name number=10
  host s "$@"
  ip -n s link add br0 type bridge
  ip -n s link set br0 up
  address s br0 10.0.0.1/24
  mkdir -p /etc/linerate /run/linerate /run/wireguard
  for name; do
    number=$((number + 1))
    cable "$name" e0 s "p$name"
    ip -n s link set "p$name" master br0
    address "$name" e0 10.0.0.$number/24
    nsenter --net="/run/netns/$name" unshare --mount bash -c '
      for folder in /etc/wireguard /etc/linerate /var/lib /run/linerate /run/wireguard; do
        mount -t tmpfs -o mode=0700 tmpfs $folder
      done
      touch /run/linerate/.ready && exec sleep infinity' &
    HOLDER[$name]=$!
    wait_for 5 "the files of $name" gw "$name" test -e /run/linerate/.ready
  done
}
gw() { nsenter --target "${HOLDER[$1]}" --mount --net "${@:2}"; } # HOST COMMAND...

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
  gw "$1" nice -n -15 "$FLEET" run "${2:-berlin}" >>"$SCENARIO_LOGS/$1.log" 2>&1 &
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
  { printf '%s\n' '[Interface]' "PrivateKey = $(<"$WORK/fleet.key")" 'Address = 10.9.0.1/24' 'ListenPort = 51820' \
    '#! PublicEndpoint = 192.0.2.100' "${@:2}"; } | gw "$1" tee /etc/wireguard/wg0.conf >/dev/null
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
    address r r$n 10.$n.0.1/24
    address g$n u$n 10.$n.0.2/24
    address g$n lo 192.0.2.100/32
    ip -n g$n route add default via 10.$n.0.1 src 192.0.2.100
  done
  address_is_at 1
}
address_is_at() { ip -n r route replace 192.0.2.100/32 via 10."$1".0.2; } # NUMBER

# The fleet "berlin" of g1, g2, g3, all of which initiate for others.
fleet_up() { # [OPTION OF init]...
  local n how at
  etcd_up
  key fleet
  for n in 1 2 3; do
    tunnel_file g$n
    gw g$n nice -n -15 "$LINERATE" up wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || fail "up on g$n: $(tail -n 3 "$SCENARIO_LOGS/up.log")"
    how=join at=()
    ((n > 1)) || how=init at=(--address 192.0.2.100:51820 "$@")
    fleet g$n $how berlin wg0 --store $STORE "${at[@]}" --mesh-endpoint 10.0.0.1$n:51821 ||
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
gateway_again() { # NUMBER
  gw "g$1" ip link del wg0 2>/dev/null || true
  gw "g$1" "$LINERATE" down wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || true
  gw "g$1" nice -n -15 "$LINERATE" up wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || fail "up after a kill: $(tail -n 3 "$SCENARIO_LOGS/up.log")"
  service_up "g$1"
  is_one_of_three "$1"
}
owner() { # GATEWAY [COUNT] : the number of the one that has the sessions of so many clients (1), as that gateway sees it
  of_service "$1" '[.gateway.gateways | to_entries[] | select(.value.peers == '"${2:-1}"') | .key | tonumber + 1] | join(" ")'
}

# A client's host at r: 198.51.NETWORK.1.
client_host() { # HOST NETWORK
  host "$1"
  cable "$1" e1 r "r$1"
  address "$1" e1 "198.51.$2.1/24"
  address r "r$1" "198.51.$2.254/24"
  ip -n "$1" route add default via "198.51.$2.254"
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
  wg_address "$2" "$3" "$(client_address "$1" | sed 's,/.*,,')/24"
}
client_set() { # NAME HOST IFACE
  on "$2" wg set "$3" private-key "$WORK/$1.key" peer "$(public fleet)" preshared-key "$WORK/$1.psk" allowed-ips 10.9.0.1/32 \
    endpoint 192.0.2.100:51820
}
