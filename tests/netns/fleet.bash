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
service_up() { # HOST [NAME] : `linerate fleet run', with its words in HOST.log
  gw "$1" "$FLEET" run "${2:-berlin}" >>"$SCENARIO_LOGS/$1.log" 2>&1 &
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
