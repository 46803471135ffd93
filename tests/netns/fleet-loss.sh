#!/usr/bin/env bash
# timeout: 400
# A fleet's client goes on although a datagram of the take-over is lost, and with it a TCP connection through its tunnel: exactly
# the first initiation, the first response or the keepalive; one datagram in twenty each way; with wireguard-go as the client.
#
#   KILLS=10 LOSS=5 tests/netns/fleet-loss.sh    measures only: the gaps of ten kills with 5 % lost each way
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
unset LINERATE_USER WG_QUICK_BACKEND
need python3

behind_router
client_host c 100
client_host d 101
fleet_up
# A host behind the gateways, 10.7.0.100, whose way to a client is what the gateways' routing daemons would tell it.
host i
ip -n i link add br0 type bridge
ip -n i link set br0 up
address i br0 10.7.0.100/24
for n in 1 2 3; do
  cable g$n e7 i p$n
  ip -n i link set p$n master br0
  address g$n e7 10.7.0.1$n/24
done
forwarding g1 g2 g3
at_gateway() { # ADDRESS : the gateway that has the route to a client
  local n
  for n in 1 2 3; do [[ ! $(ip -n g$n route show "$1" table 200 proto 108 2>/dev/null) ]] || { echo $n && return; }; done
}
is_at() { [[ $(at_gateway "$1") == "$2" ]]; } # ADDRESS GATEWAY
is_somewhere() { [[ $(at_gateway "$1") ]]; }
follow() { # ADDRESS...
  local client n
  declare -A way=()
  while sleep 0.05; do
    for client; do
      n=$(at_gateway "$client")
      [[ ! $n || $n == "${way[$client]:-}" ]] || ip -n i route replace "$client" via "10.7.0.1$n"
      way[$client]=$n
    done
  done
}

sleep 4 # a client added earlier might not count as new, and would need a cookie first
reaches_all() { # HOST IFACE
  on "$1" wg set "$2" peer "$(public fleet)" allowed-ips 10.9.0.1/32,10.7.0.0/24
  ip -n "$1" route add 10.7.0.0/24 dev "$2"
}
client_up phone c wg9
reaches_all c wg9
PHONE=$(client_address phone | sed 's,/.*,,') LAPTOP=
if type -P wireguard-go >/dev/null; then
  TUNNEL_DAEMON=wireguard-go client_up laptop d wg8
  reaches_all d wg8
  LAPTOP=$(client_address laptop | sed 's,/.*,,')
fi
follow "$PHONE" ${LAPTOP:+"$LAPTOP"} 2>/dev/null &
initiations() { # IFACE
  case $1 in
    wg9) printf 'stats=1\n\n' | uapi wg9 | sed -n 's/^handshake_initiations_sent=//p' ;;
    wg8) grep -c 'Sending handshake initiation' "$SCENARIO_LOGS/wg8.log" ;;
  esac
}
answers_ping() { on "$1" ping -n -q -c 1 -W 2 10.7.0.100; } # HOST
wait_for 20 "an answer to the phone" answers_ping c
[[ ! $LAPTOP ]] || wait_for 20 "an answer to the laptop" answers_ping d

# Kills the gateway of a client, after all have had time to be ready for it.
prepared() { # ADDRESS : its gateway is $AT, and will be followed by $NEXT
  wait_for 10 "the client's gateway" is_somewhere "$1"
  AT=$(at_gateway "$1")
  NEXT=$((AT % 3 + 1))
  address_is_at "$AT"
  sleep 6 # never two attempts within 5 s
}
killed() {
  gateway_killed "$AT"
  address_is_at "$NEXT"
}
has_moved() { is_somewhere "$1" && ! is_at "$1" "$AT"; } # ADDRESS

gap_of_ping() { # NAME [HOST RULE-DIRECTION RULE...] : what a kill costs the phone; the longest silence is in $GAP
  local before streaming
  prepared "$PHONE"
  (($# == 1)) || rule "${@:2}"
  before=$(initiations wg9)
  ip netns exec c ping -n -D -i 0.01 -s 32 10.9.0.1 >"$SCENARIO_LOGS/$1.log" 2>&1 &
  streaming=$!
  sleep 1
  killed
  wait_for 30 "the phone at another gateway" has_moved "$PHONE"
  sleep 3
  kill -INT "$streaming"
  wait "$streaming" || true
  (($# == 1)) || unblock "$2"
  GAP=$(awk -F '[][]' '/bytes from/ { if (last && $2 - last > gap) gap = $2 - last; last = $2 } END { printf "%d", gap * 1000 }' "$SCENARIO_LOGS/$1.log")
  OWN=$(($(initiations wg9) - before))
}
type_is() { echo "udp $1 51820 @th,64,8 $2"; } # sport|dport TYPE : a message of WireGuard

if [[ ${KILLS:-} ]]; then
  for ((kill = 1; kill <= KILLS; kill++)); do
    if ((${LOSS:-0} > 0)); then
      rule c in udp sport 51820 numgen random mod 100 '<' "$LOSS" drop
      rule c out udp dport 51820 numgen random mod 100 '<' "$LOSS" drop
    fi
    gap_of_ping kill$kill
    ((${LOSS:-0} == 0)) || unblock c
    note "$GAP"
    gateway_again "$AT"
  done
  exit 0
fi

for lost in initiation response keepalive; do
  say "the first $lost is lost"
  # shellcheck disable=SC2046
  case $lost in
    initiation) gap_of_ping $lost c in $(type_is sport 1) numgen inc mod 1000000 '<' 1 counter drop ;;
    response) gap_of_ping $lost c out $(type_is dport 2) numgen inc mod 1000000 '<' 1 counter drop ;;
    keepalive) gap_of_ping $lost c in $(type_is sport 4) udp length 40 numgen inc mod 1000000 '<' 1 counter drop ;;
  esac
  note "without the first $lost: longest silence $GAP ms"
  expect_at_least "the longest silence with a repetition, ms" 500 "$GAP"
  expect_at_most "the longest silence, ms" 4000 "$GAP"
  expect "initiations of the client meanwhile" 0 "$OWN"
  gateway_again "$AT"
done

say "one datagram in twenty is lost each way"
rule c out udp dport 51820 numgen random mod 100 '<' 5 drop
gap_of_ping lossy c in udp sport 51820 numgen random mod 100 '<' 5 drop
note "5 % lost each way: longest silence $GAP ms"
expect_at_most "the longest silence, ms" 20000 "$GAP"
gateway_again "$AT"

# A connection on which a numbered stream goes to the host behind the gateways and back.
cat >"$WORK/stream.py" <<'PYTHON'
import select, socket, sys, time
def blocks():
    number = 0
    while True:
        yield number.to_bytes(8, "big") * 125
        number += 1
if sys.argv[1] == "echo":
    listener = socket.create_server(("10.7.0.100", 7000))
    while True:
        s, _ = listener.accept()
        while data := s.recv(1 << 16):
            s.sendall(data)
        s.close()
s = socket.create_connection(("10.7.0.100", 7000), 10)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.setblocking(False)
begun = last = time.monotonic()
ends, gap, sent, received, at = begun + float(sys.argv[1]), 0, blocks(), blocks(), 0
out, expected, count = b"", b"", 0
while True:
    now = time.monotonic()
    if not out and now < ends and at <= now:
        out, at = next(sent), max(at + 0.01, now - 0.1)
    if not out and now >= ends:
        s.shutdown(socket.SHUT_WR)
        break
    readable, writable, _ = select.select([s], [s] if out else [], [], 0.002)
    if writable:
        out = out[s.send(out):]
    if readable:
        data = s.recv(1 << 16)
        while len(expected) < len(data):
            expected += next(received)
        if not data or expected[:len(data)] != data:
            sys.exit(f"the stream ends or differs after {count} bytes")
        expected, count = expected[len(data):], count + len(data)
        gap, last = max(gap, time.monotonic() - last), time.monotonic()
    if time.monotonic() - last > 60:
        sys.exit(f"no progress for a minute after {count} bytes")
s.setblocking(True)
s.settimeout(60)
while data := s.recv(1 << 16):
    while len(expected) < len(data):
        expected += next(received)
    if expected[:len(data)] != data:
        sys.exit(f"the stream differs after {count} bytes")
    expected, count = expected[len(data):], count + len(data)
    gap, last = max(gap, time.monotonic() - last), time.monotonic()
total = int.from_bytes(next(sent)[:8], "big") * 1000
if count != total:
    sys.exit(f"{count} of {total} bytes came back")
print(int(gap * 1000), count)
PYTHON
on i python3 "$WORK/stream.py" echo 2>"$SCENARIO_LOGS/echo.log" &
wait_for 10 "the host behind the gateways to listen" listens i 7000

connection() { # WHAT HOST IFACE ADDRESS : a connection while the client's gateway is killed
  local before streaming gap bytes
  say "a TCP connection: $1"
  prepared "$4"
  before=$(initiations "$3")
  ip netns exec "$2" python3 "$WORK/stream.py" 12 >"$WORK/stream" 2>"$SCENARIO_LOGS/stream-$3.log" &
  streaming=$!
  sleep 3
  killed
  wait "$streaming" || fail "the connection of $1: $(tail -n 1 "$SCENARIO_LOGS/stream-$3.log")"
  read -r gap bytes <"$WORK/stream"
  has_moved "$4" || fail "the client is not at another gateway"
  note "a TCP connection of $1: all of $bytes bytes there and back in order, no progress for at most $gap ms"
  expect_at_least "bytes" 500000 "$bytes"
  expect_at_most "the longest time without progress, ms" 5000 "$gap"
  expect "initiations of the client meanwhile" 0 "$(($(initiations "$3") - before))"
}
connection linerated c wg9 "$PHONE"
if [[ $LAPTOP ]]; then
  gateway_again "$AT"
  connection wireguard-go d wg8 "$LAPTOP"
fi
