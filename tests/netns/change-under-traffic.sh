#!/usr/bin/env bash
# heavy: 130,000 allowed IPs and 100,000 peers
# timeout: 300
# Packets pass while a large change is made: 130,000 allowed IPs of their own peer, then 100,000 other peers, then both go.
# It reports how long the slowest answer took, beside wireguard-go's; with ROUNDS=5 the medians of five turns of each.
source "$(dirname "$0")/lib.sh"

ROUNDS=${ROUNDS:-1}
PREFIXES=130000 PEERS=100000
two_hosts
key h1 h2
daemon h2 wg2
on h2 wg set wg2 listen-port 50002 private-key "$WORK/h2.key" peer "$(public h1)" allowed-ips 10.9.0.1/32
wg_address h2 wg2 10.9.0.2/24

peer() { printf '[Peer]\nPublicKey = %s\nAllowedIPs = 10.9.0.2/32\n' "$(public h2)"; }
addresses() { awk -v n="$1" -v first="$2" 'BEGIN { for (i = 0; i < n; i++) printf "AllowedIPs = 10.%d.%d.%d/32\n", first + int(i / 65536), int(i / 256) % 256, i % 256 }'; }
{ peer && addresses $PREFIXES 100; } >"$WORK/prefixes.conf"
# Any 43 base64 digits whose last one ends in zero bits are a public key.
head -c $((PEERS * 63 / 2)) /dev/urandom | base64 -w 42 | sed 's/.*/[Peer]\nPublicKey = &A=/' |
  paste -d '\n' - - <(addresses $PEERS 200) >"$WORK/peers.conf"
{ printf '[Interface]\nListenPort = 50001\nPrivateKey = %s\n' "$(cat "$WORK/h1.key")" && peer; } >"$WORK/one.conf"

# Leaves in $SLOWEST the milliseconds that the slowest answer took of a thousand pings a second, during COMMAND.
pinging() { # COMMAND...
  local ping status=0
  ip netns exec h1 ping -n -q -i 0.001 10.9.0.2 >"$WORK/pinged" 2>&1 &
  ping=$!
  sleep 0.2
  "$@" || status=$?
  sleep 0.1
  kill -INT $ping
  wait $ping || true
  SLOWEST=$(awk -F / '/^rtt/ { print $6 }' "$WORK/pinged")
  say "$* (status $status): $(grep transmitted "$WORK/pinged"), slowest $SLOWEST ms"
  return $status
}

declare -A slowest=()
turn() { # NAME DAEMON...
  local name=$1 what
  shift
  daemon h1 wg1 "$@"
  on h1 wg set wg1 listen-port 50001 private-key "$WORK/h1.key" peer "$(public h2)" allowed-ips 10.9.0.2/32 endpoint 192.0.2.2:50002
  wg_address h1 wg1 10.9.0.1/24
  wait_for 10 "an answer through $name" on h1 ping -n -q -c 1 -W 1 10.9.0.2
  for what in "addconf wg1 $WORK/prefixes.conf" "addconf wg1 $WORK/peers.conf" "syncconf wg1 $WORK/one.conf"; do
    # shellcheck disable=SC2086 # words
    pinging on h1 wg $what || [[ $name != linerated ]] || fail "wg $what"
    slowest[$name $what]+="$SLOWEST "
    [[ $name == linerated ]] || continue
    case $what in
      *prefixes*) expect "allowed IPs" $((PREFIXES + 1)) "$(on h1 wg show wg1 allowed-ips | awk '{ n += NF - 1 } END { print n }')" ;;
      *peers*) expect "peers" $((PEERS + 1)) "$(on h1 wg show wg1 peers | wc -l)" ;;
      *) expect "what is left" "$(public h2) 10.9.0.2/32" "$(on h1 wg show wg1 allowed-ips | tr '\t' ' ')" ;;
    esac
    pings h1 10.9.0.2
  done
  # wireguard-go may still be at work on a request that wg gave up on.
  if [[ $name == linerated ]]; then stop_daemon wg1; else kill -KILL "${PID[wg1]}" && wait_for 30 "$name to end" gone wg1; fi
}

for ((round = 1; round <= ROUNDS; round++)); do
  turn linerated "$TUNNEL_DAEMON" -f
  # wg gives up on it when it answers too late; that is no failure of this scenario.
  if type -P wireguard-go >/dev/null; then turn wireguard-go wireguard-go -f; fi
done
median() { tr ' ' '\n' | grep . | sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
for name in linerated wireguard-go; do
  type -P "${name/linerated/true}" >/dev/null || continue
  note "$name, slowest answer in ms:" \
    "$PREFIXES prefixes $(median <<<"${slowest[$name addconf wg1 $WORK/prefixes.conf]}")," \
    "$PEERS peers $(median <<<"${slowest[$name addconf wg1 $WORK/peers.conf]}")," \
    "both removed $(median <<<"${slowest[$name syncconf wg1 $WORK/one.conf]}")"
done
