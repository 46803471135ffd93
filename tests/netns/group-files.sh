#!/usr/bin/env bash
# timeout: 400
# The file of a client with a group, by the tools that read it: `up` and its supervisor, wg-quick, reloads, names as endpoints,
# and gateways by IPv6, outside and inside of the tunnel.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need jq python3

# As in group.sh, and with IPv6: the gateways g1, g2, g3 are at 192.0.2.1N and 2001:db8::1N, and in the tunnel at 10.9.0.1 and
# fd09::1; all but their keys is the same.
host h1 g1 g2 g3 net
ip -n net link add bridge type bridge && ip -n net link set bridge up
for name in h1 g1 g2 g3; do
  cable "$name" e0 net "to-$name"
  ip -n net link set "to-$name" master bridge
done
address h1 e0 192.0.2.1/24 2001:db8::1/64
key h1 g1 g2 g3
gateway() { # N : starts it, or starts it again
  daemon "g$1" "gw$1"
  on "g$1" wg set "gw$1" listen-port 51820 private-key "$WORK/g$1.key" peer "$(public h1)" allowed-ips 10.9.0.2/32,fd09::2/128
  wg_address "g$1" "gw$1" 10.9.0.1/24 fd09::1/64
  wait_for 5 "gw$1 to open its port" listens_udp "g$1" 51820
}
for n in 1 2 3; do
  address "g$n" e0 192.0.2.1"$n"/24 2001:db8::1"$n"/64
  gateway "$n"
  # What takes datagrams and says nothing.
  ip netns exec "g$n" python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 7000))
while True: s.recv(100)' &
done

file=/etc/wireguard/wg1.conf
interface() { # ADDRESSES : the file's head; its peers follow
  (umask 077 && printf '[Interface]\nPrivateKey = %s\nAddress = %s\n' "$(<"$WORK/h1.key")" "$1" >$file)
}
member() { # N ENDPOINT ALLOWED-IPS [GROUP CHECK]
  printf '\n[Peer]\n# Name = g%s\nPublicKey = %s\nEndpoint = %s\nAllowedIPs = %s\n' "$1" "$(public "g$1")" "$2" "$3" >>$file
  [[ -z ${4:-} ]] || printf '#! Group = %s\n#! Check = %s\n' "$4" "$5" >>$file
}
both="10.9.0.0/16, fd09::/64"
three() { # the usual file; g2 is asked by IPv6, and g3 is there by IPv6
  interface "10.9.0.2/24, fd09::2/64"
  member 1 192.0.2.11:51820 "$both" berlin 10.9.0.1
  member 2 192.0.2.12:51820 "$both" berlin fd09::1
  member 3 '[2001:db8::13]:51820' "$both" berlin fd09::1
}

# The peers that have allowed IPs.
active() {
  local n all=
  for n in 1 2 3; do [[ $(lists "$n") != */* ]] || all+=" g$n"; done
  echo "${all# }"
}
is_active() { [[ $(active) == "$1" ]]; }
lists() { on h1 wg show wg1 allowed-ips | awk -v key="$(public "g$1")" '$1 == key { $1 = ""; print }' | xargs -n 1 | sort | xargs; } # N
stat() { printf 'stats=1\n\n' | uapi wg1 | sed -n "s/^$1=//p"; }
has_session() { on h1 wg show wg1 latest-handshakes | awk -v key="$(public "g$1")" '$1 == key && $2 > 0 { found = 1 } END { exit !found }'; } # N
used() { on h1 ping -n -q -i 0.05 -c "${2:-40}" -W 1 "${1:-10.9.0.1}" >/dev/null 2>&1 || true; } # [ADDRESS [PINGS]]
upload() { # SECONDS : datagrams that nobody answers
  ip netns exec h1 python3 -c '
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[1]) * 50):
    time.sleep(0.02)
    s.sendto(b"data", ("10.9.0.1", 7000))' "$1"
}
# Kills the gateway in use while it is: the address is with another within 3 s, though all is busy.
fails_over() { # N TO [ADDRESS]
  used "${3:-10.9.0.1}" 100 &
  local pinging=$!
  wait_for 10 "a session with g$2" has_session "$2"
  kill -KILL "${PID[gw$1]}"
  wait_for 5 "g$2 to take over" is_active "g$2"
  pings h1 "${3:-10.9.0.1}"
  wait "$pinging"
  gateway "$1"
}
say "plan"
three
good linerate plan wg1
cp "$WORK/said" "$SCENARIO_LOGS/plan.log"
expect "routes of the group in the plan" 1 "$(grep -c '10.9.0.0/16' "$WORK/said")"

say "wg-quick"
good wg-quick up wg1
expect "the peer in use" g1 "$(active)"
pings h1 10.9.0.1
pings h1 fd09::1
fails_over 1 2
expect "its allowed IPs" "10.9.0.0/16 fd09::/64" "$(lists 2)"
before=$(sha256sum <$file)
good wg-quick save wg1
expect "the file that wg-quick has saved" "$before" "$(sha256sum <$file)"
good wg-quick down wg1
is_gone wg1

say "a daemon that dies is told its groups again"
nsenter --net=/run/netns/h1 "$LINERATE" up --supervise wg1 >>"$SCENARIO_LOGS/supervise.log" 2>&1 &
supervisor=$!
wait_for 10 "the tunnel" ledger_complete wg1
pings h1 10.9.0.1
fails_over 1 2
before=$(daemon_of wg1)
# The supervisor reads who has what, now and then.
sleep 11
kill -KILL "$before"
answered() { on h1 ping -n -q -c 1 -W 1 10.9.0.1; }
another() { [[ $(daemon_of wg1) != "$before" ]] && answered; }
wait_for 10 "another daemon" another
expect "the peer in use after a death of the daemon" g2 "$(active)"
used 10.9.0.1 60 &
wait_for 10 "a session with another" eval "has_session 1 || has_session 3"
kill -KILL "${PID[gw2]}"
has_moved() { [[ $(active) == g[13] ]]; }
wait_for 5 "another gateway to take over from g2" has_moved
pings h1 10.9.0.1
gateway 2
kill "$supervisor" && wait "$supervisor" || true
is_gone wg1

say "reloads"
three
good linerate up wg1
used
good linerate status wg1
cat "$WORK/said" >"$SCENARIO_LOGS/status.log"
expect "who is in use, of the status" 1 "$(grep -c 'g1 .*(in use of berlin)' "$WORK/said")"
expect "who is not" 2 "$(grep -c 'those of berlin, if needed' "$WORK/said")"
# Without g1, which is in use.
interface "10.9.0.2/24, fd09::2/64"
member 2 192.0.2.12:51820 "$both" berlin fd09::1
member 3 '[2001:db8::13]:51820' "$both" berlin fd09::1
good linerate reload wg1
pings h1 10.9.0.1
expect "the peer in use without g1" g2 "$(active)"
expect "peers" 2 "$(on h1 wg show wg1 peers | wc -l)"
# With g1 again: nothing moves, and it takes over.
three
good linerate reload wg1
expect "the peer in use with g1 again" g2 "$(active)"
pings h1 10.9.0.1
# Check is where nobody answers: what is sent and not answered moves the traffic, as if the gateway were dead.
upload 2
moves=$(stat group_moves)
sed -i 's/^#! Check = .*/#! Check = 10.9.0.77/' $file
good linerate reload wg1
upload 4
expect_at_least "moves while Check is an address of nobody" $((moves + 1)) "$(stat group_moves)"
three
good linerate reload wg1
used
moves=$(stat group_moves)
upload 4
# One may come of two busy processors; of a dead gateway there are several.
expect_at_most "moves while it answers" $((moves + 1)) "$(stat group_moves)"
# The group ends; each has networks of its own.
interface "10.9.0.2/24, fd09::2/64"
member 1 192.0.2.11:51820 "$both"
member 2 192.0.2.12:51820 10.11.0.0/16
member 3 '[2001:db8::13]:51820' 10.12.0.0/16
good linerate reload wg1
expect "what each has without a group" "10.9.0.0/16 fd09::/64 | 10.11.0.0/16 | 10.12.0.0/16" "$(lists 1) | $(lists 2) | $(lists 3)"
wait_for 20 "an answer of g1 alone" answered
three
good linerate reload wg1
[[ $(active) =~ ^g.$ ]] || fail "in use are: $(active)"
expect "its allowed IPs" "10.9.0.0/16 fd09::/64" "$(now=$(active) && lists "${now#g}")"
pings h1 10.9.0.1
kill_daemon
good linerate up wg1
expect "the peer in use after another up" g1 "$(active)"
fails_over 1 2
good linerate down wg1
is_gone wg1

say "names"
printf '%s\n' "127.0.0.1 localhost" "192.0.2.99 g2.example" >/etc/hosts
interface "10.9.0.2/24, fd09::2/64"
member 1 g1.example:51820 "$both" berlin 10.9.0.1
member 2 g2.example:51820 "$both" berlin 10.9.0.1
member 3 '[2001:db8::13]:51820' "$both" berlin fd09::1
good linerate up wg1
# g1 has no address yet, and where g2 is said to be is nobody.
used 10.9.0.1 100
expect "the peer in use" g3 "$(active)"
pings h1 10.9.0.1
printf '%s\n' "127.0.0.1 localhost" "192.0.2.11 g1.example" "192.0.2.12 g2.example" >/etc/hosts
used_until() { used && has_session "$1"; } # N
from=$(now_ms)
wait_for 40 "a session with g1 at its address" used_until 1
note "a name that came later: a session after $(($(now_ms) - from)) ms"
wait_for 60 "a session with g2 at its new address" used_until 2
note "a name whose address changed: a session after $(($(now_ms) - from)) ms"
expect "the peer in use" g3 "$(active)"
good linerate down wg1
is_gone wg1

say "IPv6 alone, inside and outside"
interface fd09::2/64
for n in 1 2 3; do member $n "[2001:db8::1$n]:51820" fd09::/64 berlin fd09::1; done
good linerate up wg1
pings h1 fd09::1
expect "the peer in use" g1 "$(active)"
fails_over 1 2 fd09::1
ip netns exec h1 python3 -c '
import socket, time
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for _ in range(200):
    time.sleep(0.02)
    s.sendto(b"data", ("fd09::1", 7001))'
expect_at_least "echo requests" 1 "$(stat group_echoes)"
good linerate down wg1
is_gone wg1
