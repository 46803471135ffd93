#!/usr/bin/env bash
# `linerate speed --listen`: it answers through the tunnel and nowhere else, without rights, eight connections at a time,
# four of a peer, whatever they send, for its minutes.
# timeout: 250
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/speed.bash"
need nc

two_hosts
tunnel v4
pings h1 10.9.0.2
# Another peer.
host h3
cable h3 e3 h2 f2
address h3 e3 198.51.100.3/24
address h2 f2 198.51.100.2/24
key h3
daemon h3 wg3
on h3 wg set wg3 listen-port 50003 private-key "$WORK/h3.key" peer "$(public h2)" \
  endpoint 198.51.100.2:50002 allowed-ips 10.9.0.2/32,fd09::2/128
on h2 wg set wg2 peer "$(public h3)" allowed-ips 10.9.0.3/32,fd09::3/128
wg_address h3 wg3 10.9.0.3/24 fd09::3/64
wait_for 5 "wg3 to open its port" listens_udp h3 50003
pings h3 10.9.0.2

# One that has a minute; what comes next takes some of it.
began=$(now_ms)
{
  status=0
  nsenter --net=/run/netns/h2 "$LINERATE" speed --listen wg2 --port 5283 --minutes 1 >"$WORK/short" 2>&1 || status=$?
  echo "$status $(now_ms)" >"$WORK/short-ended"
} &
wait_for 10 "the responder for a minute" listens h2 5283

responder h2 wg2
expect "sockets that listen" "10.9.0.2%wg2:5282 [fd09::2]%wg2:5282" \
  "$(on h2 ss -Hltn 'sport = :5282' | awk '{ print $4 }' | sort | xargs)"
expect "sockets for datagrams" "10.9.0.2%wg2:5282 [fd09::2]%wg2:5282" \
  "$(on h2 ss -Hlun 'sport = :5282' | awk '{ print $4 }' | sort | xargs)"
status_of() { awk -v name="$1:" '$1 == name { print $2 }' "/proc/${PID[responder]}/status"; }
expect "its capabilities" 0000000000000000 "$(status_of CapPrm)"
expect "those it could gain" 0000000000000000 "$(status_of CapBnd)"
expect "no_new_privs" 1 "$(status_of NoNewPrivs)"
if ((EUID == 0)) && [[ $(awk '{ print $3; exit }' /proc/self/uid_map) -gt 65534 ]]; then
  expect "its user" 65534 "$(status_of Uid)"
fi

# One line of JSON each; what it answers, or nothing after a time-out.
ask() { # LINE [HOST]
  printf '%b' "$1" | on "${2:-h1}" timeout 15 nc -N 10.9.0.2 5282 2>/dev/null | tr -d '\0' | head -c 4096 || true
}
watch='{"version":1,"ask":"watch","milliseconds":1}\n'
is_ready() { [[ $(ask "$watch" "$@") == '{"ready":'* ]]; } # [HOST]

say "hostile input"
expect "an answer to garbage" '{"refused":{"reason":"this is not a request"}}' "$(ask 'GET / HTTP/1.1\r\n\r\n')"
expect "an answer to another version" 1 "$(ask '{"version":7,"ask":"x"}\n' | grep -c 'speaks version 1, not 7')"
expect "an answer to a long line" '{"refused":{"reason":"a request has at most 256 bytes"}}' "$(ask "$(printf '{%.0s' {1..300})")"
expect "an answer to no line" "" "$(ask '')"
expect "an answer to a long time" 1 "$(ask '{"version":1,"ask":"watch","milliseconds":4000000000}\n' | grep -c 'takes 1 to 10000')"
expect "an answer to bytes of any kind" '{"refused":{"reason":"this is not a request"}}' "$(ask '\xff\xfe\x00\x80\n')"
for _ in {1..20}; do
  head -c 200000 /dev/urandom | on h1 timeout 5 nc -N 10.9.0.2 5282 >/dev/null 2>&1 || true
done
# Nobody measures, so datagrams are not sent back.
count h1 in back meta iifname wg1 udp sport 5282
for _ in {1..20}; do head -c 100 /dev/urandom | datagram h1 10.9.0.2 5282; done
wait_for 10 "an answer after that" is_ready
expect "datagrams that came back" 0 "$(counted h1 back)"
expect_at_most "its memory in KiB" 40000 "$(rss_kb "${PID[responder]}")"

say "a client that stops reading and writing"
# It asks for a stream that it does not read, and sends one that it does not end. Another client is served meanwhile,
# and it is told what arrived.
{ printf '{"version":1,"ask":"receive","milliseconds":2000}\n' && sleep 120; } |
  ip netns exec h1 nc 10.9.0.2 5282 2>/dev/null > >(sleep 120) &
is_kept() { [[ -n $(on h2 ss -Htan 'sport = :5282' | awk '$3 > 0 && $1 != "LISTEN"') ]]; } # bytes to send
nothing_is_kept() { ! is_kept; }
wait_for 10 "bytes that are not read" is_kept
: >"$WORK/unended"
{
  printf '{"version":1,"ask":"send","milliseconds":2000}\n'
  until grep -q '"ready"' "$WORK/unended"; do sleep 0.1; done
  printf '....'
  sleep 120
} | ip netns exec h1 nc 10.9.0.2 5282 >>"$WORK/unended" 2>&1 &
wait_for 40 "what arrived of a stream without an end" grep -q '"arrived":{"bytes":4,' "$WORK/unended"
wait_for 10 "an answer beside that" is_ready
# What it has not read does not wait for it in the kernel.
wait_for 15 "the end of the stream that is not read" nothing_is_kept

say "more connections than it serves"
# Each goes on until the responder ends it, which it does after nine seconds: a slow machine may miss them, and tries
# again.
hold() { # HOST/ADDRESS...
  rm -f "$WORK"/held-*
  local number=0 from
  for from; do
    number=$((number + 1))
    { printf '{"version":1,"ask":"watch","milliseconds":9000}\n' && sleep 120; } |
      { ip netns exec "${from%%/*}" nc "${from#*/}" 5282 || true; echo ended; } >"$WORK/held-$number" 2>&1 &
  done
}
# One that is refused may end without an answer.
say_so() { # NUMBER ANSWER
  (($(grep -l -e "\"$2\"" -e '"refused"' -e '^ended' "$WORK"/held-* 2>/dev/null | wc -l || true) == $1))
}
# What the other peer was answered meanwhile is in $OTHER.
refuses() { # WHAT HOST/ADDRESS... : beside connections to these another one is refused
  local what=$1 try
  shift
  for try in {1..5}; do
    hold "$@"
    wait_for 10 "answers to $# connections" say_so $# ready
    OTHER=$(ask "$watch" h3)
    speed 10.9.0.2 --tunnel wg1
    # The clients stay; it is the responder that ends their connections.
    wait_for 60 "the end of $# connections" say_so $# seen
    wait_for 10 "room for other ones" is_ready
    if ((STATUS == 1)) && grep -q "the responder refuses: it serves $what already" "$WORK/said" "$WORK/errors"; then
      say "beside $# connections: $what are enough"
      return
    fi
  done
  fail "another connection beside $#: expected a refusal, it says: $(cat "$WORK/said" "$WORK/errors")"
}
four=(h1/10.9.0.2 h1/10.9.0.2 h1/fd09::2 h1/fd09::2)
refuses "4 connections of this peer" "${four[@]}"
[[ $OTHER == '{"ready":'* ]] || fail "beside those of one peer another one is answered: $OTHER"
refuses "8 connections" "${four[@]}" "${four[@]/h1/h3}"

say "a peer that connects all the time"
# Its connections wait for each other, and for nobody else's.
ip netns exec h1 bash -c 'while :; do : <>/dev/tcp/10.9.0.2/5282; done' 2>/dev/null &
busy=$!
is_refused() { [[ $(ask "$watch") == *"4 connections of this peer"* ]]; }
wait_for 30 "a refusal" is_refused
for _ in {1..5}; do is_ready h3 || fail "beside it another peer is not answered"; done
kill "$busy"
wait "$busy" 2>/dev/null || true
wait_for 10 "an answer after that" is_ready

say "a measurement after all that"
speed 10.9.0.2 --tunnel wg1 --seconds 1
expect "status" 0 "$STATUS"
says "^wg1 to 10\.9\.0\.2, one TCP stream each way, answered by linerate$"
says "^throughput +[0-9.]+ [MG]bit/s +[0-9.]+ [MG]bit/s$"
says "^MTU +packets of 1420 bytes, the interface's MTU, pass$"
says "^[0-9.]+ [MG]bit/s (to|from) 10\.9\.0\.2, the slower way: .* \(.*\)$"
# It sends back what belongs to a measurement.
expect_at_least "datagrams that came back" 1 "$(counted h1 back)"
measures fd09::2 --tunnel wg1 --seconds 2
for way in send receive; do
  holds "$way: figures" ".$way.megabitsPerSecond > 0 and .$way.bytes > 0 and .$way.segments > 0 and .$way.lost != null"
  holds "$way: round trips" ".$way.underLoad.answers > 0 and .atRest.answers > 0"
  holds "$way: both machines" "(.$way.here.threads | length > 0) and (.$way.there.threads | length > 0)"
  holds "$way: a bottleneck with figures" ".$way.bottleneck.says != \"\" and .$way.bottleneck.because != \"\""
done
holds "the path" '.mtu == {"interface": 1420, "passes": 1420}'

say "from outside the tunnel"
# The address is the host's, so by another interface its packets arrive all the same.
ip netns exec h2 nc -lk 10.9.0.2 7777 >/dev/null 2>&1 &
wait_for 5 "a listener that is not bound to an interface" listens h2 7777
ip -n h1 route add 10.9.0.2/32 via 192.0.2.2 dev e1 src 192.0.2.1
reaches() { on h1 nc -z -w 2 "$@"; }
reaches 10.9.0.2 7777 || fail "the way round the tunnel does not lead to h2"
expect_failure "a connection round the tunnel" reaches 10.9.0.2 5282
expect_failure "a connection to the address outside" reaches 192.0.2.2 5282
ip -n h1 route del 10.9.0.2/32
reaches 10.9.0.2 5282 || fail "through the tunnel it does not answer any more"

say "its rate"
stop_responder
responder h2 wg2 --port 5284 --rate 2
measures 10.9.0.2 --tunnel wg1 --port 5284 --seconds 3
for way in send receive; do
  holds "$way: no more than it allows" ".$way.megabitsPerSecond < 2.5"
  holds "$way: the verdict" ".$way.bottleneck.says | startswith(\"bound by the responder's own limit\")"
done
stop_responder

say "its minute"
wait_for 65 "the end of the minute" test -s "$WORK/short-ended"
read -r status ended <"$WORK/short-ended"
expect "status after its minute" 0 "$status"
grep -q "its 1 min are over" "$WORK/short" || fail "it does not say that its minute is over: $(cat "$WORK/short")"
expect_at_least "how long it answered, in ms" 60000 $((ended - began))

say "its addresses change"
responder h2 wg2
ip -n h2 addr del fd09::2/64 dev wg2
STATUS=0
wait "${PID[responder]}" || STATUS=$?
expect "status without one of its addresses" 1 "$STATUS"
grep -q "the addresses of wg2 have changed" "$SCENARIO_LOGS/responder.log" || fail "it does not say that they changed"

say "its interface goes"
responder h2 wg2
stop_daemon wg2
STATUS=0
wait "${PID[responder]}" || STATUS=$?
expect "status without its interface" 1 "$STATUS"
grep -q "wg2 has gone" "$SCENARIO_LOGS/responder.log" || fail "it does not say that wg2 has gone"
STATUS=0
on h2 "$LINERATE" speed --listen wg2 >"$WORK/said" 2>&1 || STATUS=$?
expect "status of one for a tunnel that is not there" 1 "$STATUS"
