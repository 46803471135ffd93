# The words in which the cases of this folder are written. `run` sources it, inside a sandbox, and then the cases.
#
# A case runs a program twice, the reference and ours, under the same name, in the same place, with the same input,
# and compares standard output, standard error, exit code, and what the daemons were asked for:
#
#   same TITLE ARGUMENT...     they do the same
#   ours TITLE ARGUMENT...     ours does what $CODE, $OUT, $ERR and $ASKED say: for what the installed reference, which
#                              may be older, does not do, and for what we do better on purpose
#
# What both of them meet is set before, and lasts for one case:
#
#   INPUT=TEXT  VARIABLES=(NAME=VALUE...)  BEFORE=COMMAND, AFTER=COMMAND (run before and after each program)
#
# and what lasts for all cases that follow:
#
#   devices NAME...            these have a daemon, and no other has
#   state NAME <<TEXT          what the daemon of NAME reports; `errno=0` is added
#   answer NAME TEXT           what it says to a set (TEXT is for printf)

PLACE=/run/conformance
STATE=$PLACE/state
FILES=$PLACE/files # where the programs run
mkdir -p "$STATE" "$FILES" "$PLACE"/{reference,ours}/bin "$PLACE/seen"
ln -sf "$REFERENCE" "$PLACE/reference/bin/$PROGRAM"
ln -sf "$LINERATE" "$PLACE/ours/bin/$PROGRAM"
cd "$FILES" || exit

passed=0 failed=0 skipped=0
verdict() { # ok|FAIL TITLE
  printf '%-4s %s\n' "$1" "$2"
  if [[ $1 == ok ]]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

# --- what the programs meet ------------------------------------------------------------------------------------

state() { { cat && printf 'errno=0\n\n'; } >"$STATE/$1.get"; }
answer() { printf "$2" >"$STATE/$1.set"; } # shellcheck disable=SC2059
devices() {
  [[ -z ${MOCK:-} ]] || { kill "$MOCK" && wait "$MOCK"; } 2>/dev/null
  rm -rf /run/wireguard
  mkdir /run/wireguard
  MOCK=
  (($#)) || return 0
  local name
  for name; do [[ -e $STATE/$name.get ]] || state "$name" </dev/null; done
  rm -f "$PLACE/ready"
  mkfifo "$PLACE/ready"
  "$UAPI_MOCK" "$STATE" "$@" >"$PLACE/ready" &
  MOCK=$!
  read -r _ <"$PLACE/ready"
}
hex() { printf '%s' "$1" | base64 -d | od -An -tx1 -v | tr -d ' \n'; } # KEY in base64
# A socket without a process behind it.
dead() { # NAME
  rm -f "/run/wireguard/$1.sock" "$PLACE/dead"
  mkfifo "$PLACE/dead"
  "$UAPI_MOCK" "$STATE" "$1" >"$PLACE/dead" &
  local mock=$!
  read -r _ <"$PLACE/dead"
  { kill "$mock" && wait "$mock"; } 2>/dev/null
  return 0
}

# --- cases -----------------------------------------------------------------------------------------------------

perform() { # reference|ours ARGUMENT...
  local who=$1 seen=$PLACE/seen/$1 status=0
  shift
  rm -rf "$seen" "$STATE"/*.asked
  mkdir "$seen"
  [[ -z ${BEFORE:-} ]] || eval "$BEFORE"
  printf '%s' "${INPUT:-}" |
    env -i LC_ALL=C PATH="$PLACE/$who/bin:$PATH" "${VARIABLES[@]}" timeout 20 "$PROGRAM" "$@" >"$seen/out" 2>"$seen/err"
  status=${PIPESTATUS[1]}
  echo "$status" >"$seen/code"
  [[ -z ${AFTER:-} ]] || eval "$AFTER" >"$seen/after" 2>&1
  cat "$STATE"/*.asked >"$seen/asked" 2>/dev/null || true
  # Which sockets are left.
  (cd /run/wireguard && echo *) >"$seen/sockets"
}
expect_reference() { rm -rf "$PLACE/seen/expected" && mv "$PLACE/seen/reference" "$PLACE/seen/expected"; }
judge() { # TITLE : compares what was seen, and forgets what was set for this case
  if diff -ru "$PLACE/seen/expected" "$PLACE/seen/ours" >"$PLACE/difference" 2>&1; then
    verdict ok "$1"
  else
    verdict FAIL "$1"
    sed "s|$PLACE/seen/||; s/^/       | /" "$PLACE/difference"
  fi
  unset INPUT BEFORE AFTER CODE OUT ERR ASKED
  VARIABLES=()
}
chosen() { # TITLE
  ((${#PATTERNS[@]})) || return 0
  local pattern
  for pattern in "${PATTERNS[@]}"; do [[ $1 == *$pattern* ]] && return 0; done
  return 1
}
VARIABLES=()
same() { # TITLE ARGUMENT...
  local title=$PROGRAM/$1 try second
  shift
  chosen "$title" || { VARIABLES=() && unset INPUT BEFORE AFTER && return; }
  # Ages are reported in seconds, so that a difference counts only within one second.
  for try in {1..20}; do
    second=$EPOCHSECONDS
    perform reference "$@"
    perform ours "$@"
    diff -r "$PLACE/seen/reference" "$PLACE/seen/ours" >/dev/null && break
    ((second == EPOCHSECONDS)) && break
  done
  expect_reference
  judge "$title"
}
ours() { # TITLE ARGUMENT...
  local title=$PROGRAM/$1 expected=$PLACE/seen/expected
  shift
  chosen "$title" || { VARIABLES=() && unset INPUT BEFORE AFTER CODE OUT ERR ASKED && return; }
  perform ours "$@"
  rm -rf "$expected"
  mkdir "$expected"
  echo "${CODE:-0}" >"$expected/code"
  printf '%s' "${OUT:-}" >"$expected/out"
  printf '%s' "${ERR:-}" >"$expected/err"
  printf '%s' "${ASKED:-}" >"$expected/asked"
  cp "$PLACE/seen/ours/sockets" "$expected/sockets"
  judge "$title"
}
