#!/usr/bin/env bash
# timeout: 400
# Gateways of a fleet whose wall clocks differ, by 50 ms, by 5 s, and because one is set while it runs: whoever is wrong says so and
# takes no clients of others, and a client goes on at once when its gateway dies, also if the dead one's clock was ahead.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
source "$(dirname "$0")/late-clock.bash"
unset LINERATE_USER WG_QUICK_BACKEND

behind_router
client_host c 100
for n in 1 2 3; do
  late 0 g$n
  ENVIRONMENT[g$n]=$(by_clock g$n)
done
fleet_up
sleep 4 # a client added earlier might not count as new, and would need a cookie first
client_up phone c wg9
client_hex=$(client_key phone | hex)

stat() { printf 'stats=1\n\n' | uapi wg9 | sed -n "s/^$1=//p"; } # COUNTER : of the client
skew() { of_service "$1" ".gateway.gateways[\"$(($2 - 1))\"].skew_ms"; } # GATEWAY NUMBER : of another one's clock
is_skewed() { # GATEWAY NUMBER MS : as that gateway sees it, which is less by what a heartbeat took
  local skew
  skew=$(skew "$1" "$2")
  [[ $skew != null ]] && ((skew <= $3 + 5 && skew >= $3 - 20))
}
known_everywhere() { # NUMBER : whose the client is
  local n
  for n in 1 2 3; do wait_for 15 "g$n to know that the client is at g$1" is_owner g$n "$1"; done
}
# The client begins a session with another gateway. It remembers what gateways have sent to it.
client_goes_to() { # NUMBER
  address_is_at "$1"
  ip -n c link set wg9 down
  ip -n c link set wg9 up
  wait_for 30 "an answer of g$1" on c ping -n -q -c 1 -W 1 "$INNER"
  known_everywhere "$1"
}
# The gateway begins a session with the client, whose clock the client then knows.
gateway_begins() { # NUMBER
  responses=$(stat handshake_responses_sent)
  expect "the daemon is told to begin" errno=0 \
    "$(printf 'set=1\npublic_key=%s\nupdate_only=true\ninitiate=true\n\n' "$client_hex" | gw "g$1" nc -NU /run/wireguard/wg0.sock)"
  wait_for 5 "the client to answer it" has_answered "$responses"
}
has_answered() { [[ $(stat handshake_responses_sent) -gt $1 ]]; } # COUNT
ahead() { late "$(awk "BEGIN { print -($2) }")" g"$1"; }           # NUMBER SECONDS : its clock from now on
starts_with_clock() { # NUMBER SECONDS : ahead
  if all_of "$1" >/dev/null; then gateway_killed "$1"; fi
  ahead "$1" "$2"
  gateway_up_again "$1"
  local n
  for n in 1 2 3; do wait_for 20 "g$n to see all gateways" sees_all g$n; done
}
# The client's gateway has just begun a session, and dies; another one takes over, whose clock is the machine's.
dies() { # NUMBER WHAT
  local replayed before had
  sleep 5.5 # never two handshakes within 5 s
  stream "killed-$2"
  sleep 1
  gateway_begins "$1"
  sleep 1
  expect "whose the client is" "$1" "$(owner "g$(another "$1")")"
  replayed=$(stat drop_replayed) before=$(stat handshake_initiations_sent)
  gateway_killed "$1"
  address_is_at "$(another "$1")"
  had=$(answered)
  wait_for 15 "answers after the gateway was killed" answers_again $((had + 50))
  stream_ends
  note "$2, killed: longest silence $GAP ms, $LOST lost"
  expect_at_most "the longest silence, ms" 5000 "$GAP"
  expect "initiations of the client meanwhile" 0 "$(($(stat handshake_initiations_sent) - before))"
  expect "initiations that the client refused" 0 "$(($(stat drop_replayed) - replayed))"
}

client_goes_to 1
for direction in ahead behind; do
  [[ $direction == ahead ]] && by=0.05 || by=-0.05
  say "50 ms $direction"
  starts_with_clock 1 $by
  for n in 2 3; do wait_for 10 "g$n to see how far g1 is off" is_skewed g$n 1 "$(awk "BEGIN { print $by * 1000 }")"; done
  for n in 1 2 3; do wait_for 20 "g$n to initiate for others" is_said g$n .gateway.initiates true; done
  for pid in $(all_of 1); do
    [[ $(<"/proc/$pid/comm") != linerated ]] || grep -q late.so "/proc/$pid/maps" || fail "a daemon of g1 has the machine's clock"
  done
  client_goes_to 1
  dies 1 "50 ms $direction"
done

for direction in ahead behind; do
  [[ $direction == ahead ]] && by=5 || by=-5
  say "5 s $direction"
  starts_with_clock 1 $by
  for n in 2 3; do
    wait_for 10 "g$n to see how far g1 is off" is_skewed g$n 1 $((by * 1000))
    wait_for 20 "g$n to initiate for others" is_said g$n .gateway.initiates true
  done
  wait_for 10 "g1 to initiate for nobody" is_said g1 .gateway.initiates false
  gw g1 "$FLEET" status >"$WORK/status" 2>&1 || true
  grep -q "clock is too far" "$WORK/status" || fail "status does not tell of the clock: $(cat "$WORK/status")"

  say "its own client goes on"
  client_goes_to 1
  sleep 5.5
  stream "own-$direction"
  sleep 1
  gateway_begins 1
  sleep 1
  stream_ends
  expect "lost meanwhile" 0 "$LOST"
  known_everywhere 1

  say "it takes no client of another"
  client_goes_to 2
  dies 2 "5 s $direction, and the gateway beside it"
  expect "who has taken the client" 3 "$(owner g3)"
  expect "peers that g1 initiated to" 0 "$(counter g1 initiated)"
  gateway_up_again 2
  for n in 2 3; do wait_for 20 "g$n to initiate for others" is_said g$n .gateway.initiates true; done

  say "it dies"
  client_goes_to 1
  dies 1 "5 s $direction"
done

say "a clock is set back and ahead while its gateway runs"
ahead 1 0
gateway_again 1
client_goes_to 1
sleep 5.5
stream stepped
for by in -5 5; do
  ahead 1 $by
  wait_for 10 "g1 to see that its clock is wrong" is_said g1 .gateway.initiates false
  for n in 2 3; do is_said g$n .gateway.initiates true || fail "g$n takes its own clock for wrong"; done
  gateway_begins 1
  sleep 6
  ahead 1 0
  wait_for 10 "g1 to be right again" is_said g1 .gateway.initiates true
done
stream_ends
expect "lost while the clock was set" 0 "$LOST"
known_everywhere 1
dies 1 "set while it ran"
