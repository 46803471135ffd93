# Words for scenarios about `linerate speed`, sourced after lib.sh.

need jq

# Starts the other end on HOST for IFACE; its process is ${PID[responder]}, what it says in responder.log.
responder() { # HOST IFACE [OPTION...]
  local at=$1 iface=$2 port=5282
  shift 2
  [[ ${1:-} != --port ]] || port=$2
  # Not by `ip netns exec`, which hides /sys/fs/cgroup.
  nsenter --net="/run/netns/$at" "$LINERATE" speed --listen "$iface" "$@" >>"$SCENARIO_LOGS/responder.log" 2>&1 &
  PID[responder]=$!
  wait_for 10 "the responder on $at" listens "$at" "$port"
}
stop_responder() {
  kill -INT "${PID[responder]}"
  STATUS=0
  wait "${PID[responder]}" || STATUS=$?
  expect "status of a responder that was told to end" 0 "$STATUS"
}

# Measures from h1: its output is in $WORK/said, its errors are in $WORK/errors, its exit status is in $STATUS.
speed() { # ARGUMENT...
  STATUS=0
  nsenter --net=/run/netns/h1 timeout 120 "$LINERATE" speed "$@" >"$WORK/said" 2>"$WORK/errors" || STATUS=$?
  { echo "--- speed $*: $STATUS" && cat "$WORK/said" "$WORK/errors"; } >>"$SCENARIO_LOGS/speed.log"
}
measures() { # ARGUMENT... : as speed, with JSON, and it has to work
  speed --json "$@"
  expect "status of speed $*" 0 "$STATUS"
  note "speed $*: $(figure '.verdict')"
}
says() { # REGEX
  grep -Eq -- "$1" "$WORK/said" "$WORK/errors" || fail "expected $1, but it says: $(cat "$WORK/said" "$WORK/errors")"
}
figure() { jq -r "$1" "$WORK/said"; } # JQ-EXPRESSION
holds() { # WHAT JQ-CONDITION
  jq -e "$2" "$WORK/said" >/dev/null || fail "$1: expected $2, saw: $(cat "$WORK/errors")$(jq -c . "$WORK/said")"
  say "$1: $2"
}
