#!/usr/bin/env bash
# timeout: 60
# `linerate ping`: how long the handshake took, round trips with the endpoint used, and why there are none.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
of_h2=$(public h2)
ping_by() { # ARGUMENT... : what it says is in $WORK/said, its status in $STATUS
  STATUS=0
  on h1 timeout 20 "$LINERATE" ping "$@" >"$WORK/said" 2>&1 || STATUS=$?
  { echo "--- ping $*: $STATUS" && cat "$WORK/said"; } >>"$SCENARIO_LOGS/said.log"
}
says() { grep -Eq -- "$1" "$WORK/said" || fail "expected $1, but it says: $(cat "$WORK/said")"; } # REGEX

# The first request makes a handshake.
ping_by "$of_h2" -c 3 -i 0.05
expect "status" 0 "$STATUS"
says "^handshake with 192\.0\.2\.2:50002 took [0-9.]+ ms$"
expect "answers" 3 "$(grep -c "^pong [1-3] from 10\.9\.0\.2 via 192\.0\.2\.2:50002 in [0-9.]* ms$" "$WORK/said")"
says "^3 of 3 answered; round trips of [0-9.]+ ms at least, [0-9.]+ ms in the median, [0-9.]+ ms at most$"
# The second one finds it there; at the other end, which did not begin it, it has no duration.
ping_by fd09::2 -c 2 -i 0.05
expect "status" 0 "$STATUS"
says "^last handshake with 192\.0\.2\.2:50002 [0-9]+ s ago; it took [0-9.]+ ms$"
says "^pong 2 from fd09::2 via "
on h2 "$LINERATE" ping --tunnel wg2 10.9.0.1 -c 1 >"$WORK/said"
says "^last handshake with 192\.0\.2\.1:50001 [0-9]+ s ago$"

# One object a line; milliseconds as numbers.
ping_by 10.9.0.2 -c 2 -i 0.05 --json
expect "lines" "start handshake answer answer end" "$(sed -E 's/^\{"type":"([a-z]+)".*\}$/\1/' "$WORK/said" | xargs)"
says '^\{"type":"answer","number":2,"endpoint":"192\.0\.2\.2:50002","endpointChanged":false,"milliseconds":[0-9.]+\}$'

# The peer moves between two requests.
ip netns exec h1 "$LINERATE" ping 10.9.0.2 --count 0 -i 0.1 >"$WORK/said" 2>&1 &
running=$!
wait_for 5 "answers" grep -q '^pong 3' "$WORK/said"
on h2 wg set wg2 listen-port 50003
pings h2 10.9.0.1 -c 1
moved() { grep -q '^pong .* via 192\.0\.2\.2:50003 in .*; the endpoint was 192\.0\.2\.2:50002$' "$WORK/said"; }
wait_for 5 "an answer by another way" moved
kill -INT "$running"
STATUS=0
wait "$running" || STATUS=$?
expect "status, interrupted after answers" 0 "$STATUS"
says "^[0-9]+ of [0-9]+ answered"

# The tunnel works, the address does not answer; then nobody answers handshakes.
block h2 in meta iifname wg2 ip protocol icmp
ping_by 10.9.0.2 -c 2 -i 0.05 -W 0.2
expect "status without an answer" 1 "$STATUS"
says "^no answer to 2 within 0\.2 s$"
says "so the tunnel works as far as 192\.0\.2\.2:50003: 10\.9\.0\.2 does not answer"
unblock h2
other=$(wg genkey | wg pubkey)
on h1 wg set wg1 peer "$other" endpoint 192.0.2.2:9 allowed-ips 10.9.7.7/32
ping_by "$other" -c 1 -W 0.3
expect "status without a handshake" 1 "$STATUS"
says "^192\.0\.2\.2:9 does not answer handshakes; .linerate doctor wg1. looks for the reason$"

# Whom it cannot ping, and why.
on h1 wg set wg1 peer "$other" remove
on h1 wg set wg1 peer "$other" allowed-ips 10.9.8.0/24
ping_by "$other"
expect "status" 1 "$STATUS"
says "which address .* is not in its allowed IPs \(10\.9\.8\.0/24\); give an address"
ping_by 10.9.8.8
expect "status" 1 "$STATUS"
says "has no endpoint yet: it has to send something first"
ping_by nobody
expect "status" 1 "$STATUS"
says "no tunnel has the peer nobody"
# A server's address is that of its network where all traffic goes to it.
on h1 wg set wg1 peer "$other" remove
on h1 wg set wg1 peer "$of_h2" allowed-ips 0.0.0.0/0
ip -n h1 addr del 10.9.0.1/24 dev wg1
ip -n h1 addr add 10.9.0.7/24 dev wg1
ip -n h2 addr add 10.9.0.1/32 dev wg2
ip -n h2 route replace 10.9.0.7/32 dev wg2
on h2 wg set wg2 peer "$(public h1)" allowed-ips 10.9.0.7/32
ping_by "$of_h2" -c 1
says "^10\.9\.0\.1 is the first address of wg1's network"
says "^pong 1 from 10\.9\.0\.1 via "

# Another daemon does not say how long handshakes take: it is measured from the first request.
if type -P wireguard-go >/dev/null; then
  stop_daemon wg1
  daemon h1 wg1 wireguard-go -f
  on h1 wg set wg1 private-key "$WORK/h1.key" peer "$of_h2" allowed-ips 10.9.0.1/32 endpoint 192.0.2.2:50003
  wg_address h1 wg1 10.9.0.7/24
  ping_by "$of_h2" -c 2 -i 0.05
  says "^handshake with 192\.0\.2\.2:50003 took [0-9.]+ ms$"
  says "^2 of 2 answered"
fi
