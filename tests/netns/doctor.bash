# Words for scenarios about `linerate doctor`, sourced after lib.sh.

# What depends on the machine that the scenarios run on, and is not what they are about.
MACHINE='^(confinement-weak|cpu-stolen|cpu-governor|cpu-limited|one-thread-full|receive-on-one-core|offload-tun-missing)$'

doctor() { # HOST IFACE [OPTION...] : its words for people are in $WORK/doctor, the identifiers in $FOUND, its status in $STATUS
  local at=$1 iface=$2
  shift 2
  STATUS=0
  nsenter --net="/run/netns/$at" "$LINERATE" doctor "$iface" --json "$@" >"$WORK/doctor" 2>"$WORK/doctor-said" || STATUS=$?
  FOUND=$(sed -n 's/.*"id": "\(.*\)",/\1/p' "$WORK/doctor" | grep -vE "$MACHINE" | sort -u | tr '\n' ' ' | sed 's/ $//' || true)
  { echo "--- doctor $at $iface $*: $STATUS" && cat "$WORK/doctor" "$WORK/doctor-said"; } >>"$SCENARIO_LOGS/doctor.log"
}
finds() { # WHAT HOST IFACE IDENTIFIER... : these, and nothing else
  local what=$1 at=$2 iface=$3
  shift 3
  doctor "$at" "$iface"
  expect "$what: what doctor finds on $at" "$(printf '%s\n' "$@" | sort -u | tr '\n' ' ' | sed 's/ $//')" "$FOUND"
  if grep -q '"severity": "error"' "$WORK/doctor"; then
    expect "$what: its status" 1 "$STATUS"
  else
    expect "$what: its status" 0 "$STATUS"
  fi
}
healthy() { # WHAT HOST IFACE : nothing
  finds "$1" "$2" "$3"
}
tells() { # PATTERN : in the findings
  grep -qE -- "$1" "$WORK/doctor" || fail "expected doctor to say '$1', saw: $(grep -E '"(what|why|remedy)"' "$WORK/doctor" | tr '\n' ' ')"
  say "doctor: $(grep -E -- "$1" "$WORK/doctor" | head -n 1)"
}
# Types the commands that doctor advises for a finding. It needs jq.
advised() { # WHAT HOST IDENTIFIER
  local command
  jq -r --arg id "$3" '.findings[] | select(.id == $id) | .remedy' "$WORK/doctor" | grep -oE '`[^`]+`' | tr -d '`' >"$WORK/advised" || true
  [[ -s $WORK/advised ]] || fail "$1: nothing is advised"
  while read -r command; do
    say "$1: $command"
    nsenter --net="/run/netns/$2" bash -c "$command" </dev/null >/dev/null || fail "$1: that failed: $command"
  done <"$WORK/advised"
}
