#!/usr/bin/env bash
# timeout: 60
# Datagrams that are malformed, truncated, forged, replayed or oversized are dropped, counted and change nothing.
source "$(dirname "$0")/lib.sh"
need tcpdump

two_hosts
LOG_LEVEL=info
tunnel v4
pings h1 10.9.0.2
host x # has no key
cable x e3 h1 g1
address x e3 203.0.113.9/24
address h1 g1 203.0.113.1/24
at_h1() { datagram x 203.0.113.1 50001; }
memory=$(rss_kb "${PID[wg1]}") lines=$(wc -l <"$SCENARIO_LOGS/wg1.log")

say "malformed"
message_type() { printf '%b\0\0\0' "\\x$(printf %02x "$1")"; } # the first four bytes of a message
ip netns exec x perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0); send(S, "", 0, sockaddr_in(50001, inet_aton("203.0.113.1")))' && empty=1 || say "no perl: nothing empty is sent"
for size in 1 2 3; do head -c $size /dev/zero | at_h1; done
too_short() { printf 'stats=1\n\n' | uapi wg1 | awk -F= '$1 == "drop_too_short" { print $2 }'; }
all_counted() { (($(too_short) == 3 + ${empty:-0})); }
wait_for 5 "each of them to be counted" all_counted
for type in 0 1 2 3 4 5 255; do
  for size in 4 15 16 31 32 33 63 64 91 92 93 147 148 149 1500 65507; do
    for filler in zero urandom; do { message_type $type && head -c $((size - 4)) /dev/$filler; } | at_h1; done
  done
  { message_type $type | tr '\0' '\377' && head -c 200 /dev/urandom; } | at_h1 # reserved bytes that are not zero
done
for _ in {1..20}; do head -c 148 /dev/urandom | at_h1; done
pings h1 10.9.0.2
expect "endpoint of h2" 192.0.2.2:50002 "$(endpoint h1 wg1)"

say "a real one, replayed by another host: as it is, shortened, lengthened, altered"
ip netns exec h1 tcpdump -i e1 -c 1 -w "$WORK/capture" -U 'udp dst port 50001 and ip src 192.0.2.2' >/dev/null 2>"$WORK/tcpdump" &
capture=$!
wait_for 5 "tcpdump" grep -q listening "$WORK/tcpdump"
pings h1 10.9.0.2
wait $capture
# File header 24; then per packet: record header 16, Ethernet 14, IPv4 20, UDP 8, and 128 bytes of message.
tail -c 128 "$WORK/capture" >"$WORK/message"
expect "type of the captured message" 04000000 "$(head -c 4 "$WORK/message" | od -An -v -tx1 | tr -d ' \n')"
delivered() { on h1 awk '/^Icmp: [0-9]/ { print $2 }' /proc/net/snmp; }
icmp=$(delivered)
for _ in {1..10}; do at_h1 <"$WORK/message"; done
head -c 100 "$WORK/message" | at_h1
{ cat "$WORK/message" && head -c 16 /dev/zero; } | at_h1
{ head -c 60 "$WORK/message" && printf 'xxxx' && tail -c 64 "$WORK/message"; } | at_h1
sleep 0.3
expect "ICMP messages delivered by replays" 0 $(($(delivered) - icmp))
expect "endpoint of h2 after the replays" 192.0.2.2:50002 "$(endpoint h1 wg1)"
pings h1 10.9.0.2

say "a real initiation, replayed by another host: no answer, no new session"
ip netns exec h1 tcpdump -i e1 -c 1 -w "$WORK/capture" -U 'udp dst port 50001 and udp[4:2] = 156' >/dev/null 2>"$WORK/tcpdump" &
capture=$!
wait_for 5 "tcpdump" grep -q listening "$WORK/tcpdump"
forget h2 wg2
wait_for 15 "a new handshake from h2" on h2 ping -n -q -c 1 -W 1 10.9.0.1
wait $capture
tail -c 148 "$WORK/capture" >"$WORK/initiation"
count x in answers udp sport 50001
for _ in {1..5}; do at_h1 <"$WORK/initiation"; done
sleep 0.5
expect "answers to replayed initiations" 0 "$(counted x answers)"
pings h1 10.9.0.2
expect "endpoint of h2 after the replays" 192.0.2.2:50002 "$(endpoint h1 wg1)"

say "a flood of forgeries beside real traffic"
ip netns exec x bash -c 'end=$((SECONDS + 3)); while ((SECONDS < end)); do for i in {1..200}; do printf "\x01\0\0\0%0144d" $i >/dev/udp/203.0.113.1/50001; printf "\x04\0\0\0%0300d" $i >/dev/udp/203.0.113.1/50001; done; done' &
flood=$!
# Some of it may be lost where the flood fills the socket's buffer, but never all.
on h1 ping -n -q -c 20 -i 0.1 -W 2 10.9.0.2 >"$WORK/ping" || true
expect_at_least "answers to 20 pings during the flood" 5 "$(awk '/received/ { print $4 }' "$WORK/ping")"
wait $flood
alive wg1 || fail "the daemon ended"
expect_at_most "kilobytes that the daemon grew by" 20000 $(($(rss_kb "${PID[wg1]}") - memory))
expect_at_most "lines in the log at level info" 20 $(($(wc -l <"$SCENARIO_LOGS/wg1.log") - lines))

if [[ -x $LINERATE && $(basename "$TUNNEL_DAEMON") == linerated ]]; then
  say "each under its own name"
  on h1 "$LINERATE" show wg1 --stats | tee "$WORK/stats"
  for reason in "too short" "unknown type" "bad length" mac1 undecryptable replayed "unknown index" "counter replayed"; do
    grep -qE "drop $reason +[1-9]" "$WORK/stats" || fail "linerate show wg1 --stats does not count '$reason'"
  done
fi
