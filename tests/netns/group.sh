#!/usr/bin/env bash
# timeout: 400
# Many identities: a client with a group of three gateways of different keys. When the one in use is killed or stopped, the
# client moves its traffic to another by itself; at rest it sends nothing.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need tcpdump python3

# The gateways are on one network with the client, at 192.0.2.1N. Each has the address 10.9.0.1 in the tunnel, for echo
# requests and for what the client sends datagrams to.
host c g1 g2 g3 net
ip -n net link add bridge type bridge && ip -n net link set bridge up
for name in c g1 g2 g3; do
  cable "$name" e0 net "to-$name"
  ip -n net link set "to-$name" master bridge
done
address c e0 192.0.2.1/24
key client g1 g2 g3
client_public=$(public client)
gateway() { # N : starts it, or starts it again
  daemon "g$1" "wg$1"
  on "g$1" wg set "wg$1" listen-port 51820 private-key "$WORK/g$1.key" peer "$client_public" allowed-ips 10.9.0.2/32
  wg_address "g$1" "wg$1" 10.9.0.1/24
  wait_for 5 "wg$1 to open its port" listens_udp "g$1" 51820
}
for n in 1 2 3; do
  address "g$n" e0 192.0.2.1"$n"/24
  gateway "$n"
done

file=/etc/wireguard/wg0.conf
tool() { at c timeout 60 "$LINERATE" "$@"; }
{
  printf '[Interface]\nPrivateKey = %s\nAddress = 10.9.0.2/24\n' "$(cat "$WORK/client.key")"
  for n in 1 2 3; do
    printf '\n[Peer]\n# Name = g%s\nPublicKey = %s\nEndpoint = 192.0.2.1%s:51820\nAllowedIPs = 10.9.0.0/16\n' \
      "$n" "$(public "g$n")" "$n"
    printf '#! Group = berlin\n#! Check = 10.9.0.1\n'
  done
} >"$file"
chmod 600 "$file"
tool up "$file" 2>&1 | tee "$SCENARIO_LOGS/up.log"

active() { tool status --json wg0 | python3 -c '
import json, sys
status = json.load(sys.stdin)
status = status[0] if isinstance(status, list) else status
print(*[peer["name"] for peer in status["peers"] if peer.get("active")])'; }
stat() { printf 'stats=1\n\n' | uapi wg0 | sed -n "s/^$1=//p"; }
is_active() { [[ $(active) == "$1" ]]; }
expect "the peer in use" g1 "$(active)"
expect "routes to the group's networks" 1 "$(ip -n c route show 10.9.0.0/16 | wc -l)"
pings c 10.9.0.1
ready() { [[ $(on c wg show wg0 latest-handshakes | awk '$2 > 0' | wc -l) -ge 2 ]]; }

# 100 datagrams a second from the client; whichever gateway gets them writes down when. All clocks are one.
receivers=()
for n in 1 2 3; do
  ip netns exec "g$n" python3 -c '
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 7000))
while True:
    data, sender = s.recvfrom(100)
    print(time.monotonic(), data.decode(), flush=True)' >>"$WORK/arrived" 2>/dev/null &
  receivers+=($!)
done
stream() { # SECONDS
  ip netns exec c python3 -c '
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
start = time.monotonic()
for n in range(int(float(sys.argv[1]) * 100)):
    time.sleep(max(0, start + n / 100 - time.monotonic()))
    try: s.sendto(b"%d" % n, ("10.9.0.1", 7000))
    except OSError: pass' "$1"
}
# The longest time between two arrivals since the mark, in milliseconds.
longest_gap() { sort -n "$WORK/arrived" | awk 'NR > 1 && $1 - last > gap { gap = $1 - last } { last = $1 } END { printf "%d\n", gap * 1000 }'; }
number_of() { echo "${1#g}"; }

gaps=()
runs=3
[[ -z ${FULL:-} ]] || runs=10
for ((run = 1; run <= runs; run++)); do
  : >"$WORK/arrived"
  before=$(active) victim=$(number_of "$before")
  stream 4 &
  streaming=$!
  wait_for 10 "sessions with two gateways" ready
  # Never at the same moment of an interval between two looks.
  sleep "1.$((run * 37 % 100 + 100))"
  kill -KILL "${PID[wg$victim]}"
  wait "$streaming"
  wait_for 5 "the killed daemon to be gone" gone "wg$victim"
  gaps+=("$(longest_gap)")
  after=$(active)
  [[ $after != "$before" && -n $after ]] || fail "run $run: $before was killed, and the peer in use is $after"
  gateway "$victim"
  # The client asks the dead one whether it is back, and only while it sends.
  for n in 1 2 3 4 5 6 7 8; do
    [[ $(on c wg show wg0 latest-handshakes | awk -v k="$(public "g$victim")" -v now="$(date +%s)" '$1 == k && now - $2 < 8' | wc -l) == 0 ]] || break
    stream 1
  done
done
median=$(printf '%s\n' "${gaps[@]}" | sort -n | awk '{ v[NR] = $1 } END { printf "%d\n", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }')
note "kill -9 of the gateway in use, 100 datagrams a second: gaps of ${gaps[*]} ms, median $median ms"
expect_at_most "median gap in ms" 1500 "$median"

# Stopped, so that its port stays open and its kernel tells nobody.
: >"$WORK/arrived"
before=$(active) victim=$(number_of "$before")
stream 4 &
streaming=$!
wait_for 10 "sessions with two gateways" ready
sleep 1.5
kill -STOP "${PID[wg$victim]}"
wait "$streaming"
note "SIGSTOP: gap of $(longest_gap) ms"
expect_at_most "gap in ms after SIGSTOP" 3000 "$(longest_gap)"
kill -CONT "${PID[wg$victim]}"
[[ $(active) != "$before" ]] || fail "$before was stopped and is still in use"

# Upload alone, of which the gateways' users answer nothing, moves nothing.
before=$(active) moves=$(stat group_moves) echoes=$(stat group_echoes)
stream 10
expect "the peer in use after an upload" "$before" "$(active)"
expect "moves meanwhile" "$moves" "$(stat group_moves)"
expect_at_least "echo requests meanwhile" 1 $(($(stat group_echoes) - echoes))
# Traffic both ways needs none.
echoes=$(stat group_echoes) looks=$(($(stat wakeups_control_work) + $(stat wakeups_control_empty))) from=$(now_ms)
on c ping -n -q -i 0.02 -c 200 10.9.0.1 >/dev/null
looks=$(($(stat wakeups_control_work) + $(stat wakeups_control_empty) - looks)) took=$(($(now_ms) - from))
note "200 pings in $took ms: $(($(stat group_echoes) - echoes)) echo requests of our own, $looks wake-ups of the slow path"
# Each 150 ms, for what this scenario asks, and some; not for each packet.
expect_at_most "wake-ups of the slow path" $((took / 150 + 20)) "$looks"

# The file: reload and save leave the peer in use.
tool save "$file"
expect "lines with AllowedIPs of the saved file" 3 "$(grep -c '^AllowedIPs = 10.9.0.0/16$' "$file")"
sed -i 's|^AllowedIPs = .*|AllowedIPs = 10.9.0.0/16, 10.10.0.0/16|' "$file"
tool reload "$file"
expect "the peer in use after a reload" "$before" "$(active)"
expect "its allowed IPs" "10.10.0.0/16 10.9.0.0/16" "$(on c wg show wg0 allowed-ips | awk '$2 != "(none)" { $1 = ""; print }' | xargs -n 1 | sort | xargs)"
expect "routes" 2 "$(ip -n c route show dev wg0 | grep -c '10\.\(9\|10\)\.0\.0/16')"

# At rest: no packet, and the daemon is not woken.
say "waiting for the timers of the last data"
sleep 17
pid=$(daemon_of wg0)
ip netns exec net tcpdump -n -i to-c udp >"$WORK/idle" 2>"$SCENARIO_LOGS/tcpdump.log" &
dump=$!
wait_for 30 "tcpdump" grep -q listening "$SCENARIO_LOGS/tcpdump.log"
rests() { # for 30 s: no context switch of any thread of the client's daemon, no packet
  local before packets
  before=$(wakeups "$pid") packets=$(grep -c . "$WORK/idle")
  sleep 30
  [[ $(wakeups "$pid") == "$before" && $(grep -c . "$WORK/idle") == "$packets" ]]
}
# A timer of the last data may come late on a busy machine.
rests || rests || fail "the client's daemon does not come to rest: $(wakeups "$pid") context switches, $(grep -c . "$WORK/idle") packets"
kill "$dump" && wait "$dump" || true

# All dead, then one back.
for n in 1 2 3; do kill -KILL "${PID[wg$n]}"; done
for n in 1 2 3; do wait_for 5 "wg$n to be gone" gone "wg$n"; done
stream 2
: >"$WORK/arrived"
gateway 3
stream 12 &
streaming=$!
back=$(now_ms)
wait_for 12 "datagrams at the one that is back" test -s "$WORK/arrived"
note "all dead, one back: it had the traffic $(($(now_ms) - back)) ms later"
wait "$streaming"
expect "the peer in use" g3 "$(active)"
kill "${receivers[@]}" || true
tool down "$file"
