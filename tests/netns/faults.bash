# Words for the scenarios about faults (docs/faults.md), sourced after lib.sh: what ran before a fault runs after it.
# They act on wg1 on h1 and wg2 on h2, as `tunnel` makes them.

# What `linerate show` says of both ends, but for what traffic changes.
shown() {
  local end
  for end in 1 2; do on "h$end" "$LINERATE" show "wg$end" | grep -vE '^  (latest handshake|transfer):'; done
}
before_fault() {
  pings h1 10.9.0.2
  pings h2 10.9.0.1
  shown >"$WORK/shown"
}
# Pings every tenth of a second until one is answered: a packet of the moment of change may be lost.
carries() { on h1 ping -n -q -c 1 -i 0.1 -w 1 10.9.0.2; }
# Traffic in both directions, and both ends as they were; the first answer may take so many seconds.
after_fault() { # SECONDS WHAT
  local began
  began=$(now_ms)
  wait_for "$1" "traffic after: $2" carries
  say "$2: traffic after $(($(now_ms) - began)) ms"
  pings h1 10.9.0.2
  pings h2 10.9.0.1
  pings h1 fd09::2
  diff "$WORK/shown" <(shown) >"$WORK/difference" || fail "$2: the configuration is not as it was: $(tr '\n' ' ' <"$WORK/difference")"
  say "$2: the configuration is as it was"
}

# A TCP stream from h1 to h2 that outlives the fault: iperf3 says at its end whether it did. `arrived` counts its
# packets on h2, whatever becomes of the interface there.
stream() { # [IPERF3 OPTION...]
  grep -q 'counter stream' <<<"$(on h2 nft list table inet scenario 2>/dev/null)" || count h2 in stream ip saddr 10.9.0.1 tcp dport 5201
  ip netns exec h2 iperf3 -s -1 -p 5201 >"$SCENARIO_LOGS/iperf-server.log" 2>&1 &
  wait_for 5 "iperf3 -s on h2" listens h2 5201
  ip netns exec h1 iperf3 -c 10.9.0.2 -p 5201 -t 600 --connect-timeout 5000 "$@" >"$SCENARIO_LOGS/iperf.log" 2>&1 &
  STREAM=$!
  flows
}
arrived() { counted h2 stream; }
# Waits until the stream has moved on from where it is, and says how long that took in $TOOK. Where the receiver has lost
# its session, the sender notices after 15 s without an answer (KEEPALIVE_TIMEOUT and REKEY_TIMEOUT), and TCP, which has
# backed off meanwhile, sends again up to 15 s after that.
flows() {
  local begun there
  begun=$(now_ms) there=$(arrived)
  wait_for 40 "the stream to flow" eval "((\$(arrived) >= $there + 50))"
  TOOK=$(($(now_ms) - begun))
}
end_stream() {
  [[ -d /proc/$STREAM ]] || fail "the stream was broken: $(tail -n 1 "$SCENARIO_LOGS/iperf.log")"
  kill "$STREAM"
  wait "$STREAM" || true
}

# What a daemon counts under a name; 0 for what has not occurred.
stat_of() { # IFACE NAME
  { printf 'stats=1\n\n' | uapi "$1"; } | awk -F= -v name="$2" '$1 == name { n = $2 } END { print n + 0 }'
}
# The daemon of an interface may take so much of a core, in per cent, while COMMAND is done.
at_ease() { # IFACE PERCENT WHAT COMMAND...
  local iface=$1 most=$2 what=$3 ticks began
  shift 3
  ticks=$(cpu_ticks "${PID[$iface]}") began=$(now_ms)
  "$@"
  expect_at_most "$what: per cent of a core" "$most" $((($(cpu_ticks "${PID[$iface]}") - ticks) * 1000 / ($(now_ms) - began)))
}
