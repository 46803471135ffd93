# What is written down: samples.tsv has a line for each of our processes every ten seconds, events.tsv one for each
# event. `judge` reads them.

SAMPLES=$SCENARIO_LOGS/samples.tsv EVENTS_FILE=$SCENARIO_LOGS/events.tsv
PERIOD=10

watch() {
  STARTED=$(now_ms)
  {
    echo "# $(date -u +%F), $(sed -n 's/^model name.*: //p;T;q' /proc/cpuinfo), Linux $(uname -r), commit $(commit), seed $SEED"
    printf 's\tprocess\tpid\trss_kb\tanonymous_kb\tdescriptors\tthreads\tcpu_s\treceived\tsent\thandshake_s\terrors\n'
  } >"$SAMPLES"
  printf 'begun_s\tover_s\tback_s\tlimit_s\tevent\tdetail\tverdict\n' >"$EVENTS_FILE"
  {
    trap - ERR
    local next=0 lines
    while :; do
      sleep_until $((STARTED + next * 1000))
      # All at once, so that no line is ever cut short.
      lines=$(sample)
      printf '%s\n' "$lines" >>"$SAMPLES"
      next=$((next + PERIOD))
    done
  } &
  SAMPLER=$!
}
commit() { git -C "$REPO" rev-parse --short HEAD 2>/dev/null || echo unknown; }
sleep_until() { # MILLISECONDS
  local left=$(($1 - $(now_ms)))
  ((left <= 0)) || sleep "$((left / 1000)).$(printf %03d $((left % 1000)))"
}
since_start() { awk -v ms=$(($(now_ms) - STARTED)) 'BEGIN { printf "%.3f", ms / 1000 }'; }

# One that cannot be asked, because it was killed a moment ago, has no line.
sample() {
  local iface when pid through errors
  when=$((($(now_ms) - STARTED + 500) / 1000))
  for iface in wg1 wg2 wg3; do
    pid=$(daemon_of $iface) && through=$(through $iface) && errors=$(errors $iface) || continue
    row "$when" $iface "$pid" "$through" "$errors"
    row "$when" "supervisor of $iface" "${PID[$iface]}" "0 0 -" ""
  done
}
row() { # WHEN PROCESS PID "RECEIVED SENT HANDSHAKE" ERRORS
  local rss anonymous threads descriptors cpu received sent handshake
  read -r rss anonymous threads < <(
    awk '/^VmRSS|^RssAnon|^Threads/ { v[$1] = $2 } END { print v["VmRSS:"], v["RssAnon:"], v["Threads:"] }' "/proc/$3/status"
  ) || return 0
  descriptors=("/proc/$3/fd"/*)
  cpu=$(awk '{ print ($14 + $15) / 100 }' "/proc/$3/stat" 2>/dev/null) && [[ $threads ]] || return 0
  read -r received sent handshake <<<"$4"
  printf '%s\t' "$1" "$2" "$3" "$rss" "$anonymous" ${#descriptors[@]} "$threads" "$cpu" "$received" "$sent" "$handshake"
  printf '%s\n' "$5"
}
# What all peers received and sent, and when the latest handshake was completed, in seconds since the start.
through() { # IFACE
  timeout 5 wg show "$1" dump | awk -v start=$((STARTED / 1000)) '
    NR > 1 { r += $6; s += $7; if ($5 > h) h = $5 }
    END { printf "%.0f %.0f %s\n", r, s, h ? h - start : "-" }'
}
errors() { # IFACE : the counters of errors that are not zero
  printf 'stats=1\n\n' | timeout 5 nc -NU "/run/wireguard/$1.sock" | awk -F= '
    (/^drop_/ || /^segmentation_refused/) && $2 > 0 { sub("drop_", "", $1); printf "%s%s=%s", n++ ? " " : "", $1, $2 }'
}

# One event: what happens, then how long until all ways through both tunnels answer.
happen() { # EVENT
  local begun over verdict=ok
  DETAIL='' LIMIT=2
  progress "${1//_/ }"
  begun=$(since_start)
  "event_$1"
  over=$(since_start)
  back 60 || verdict=lost
  [[ $verdict == lost ]] || ((BACK_MS <= LIMIT * 1000)) || verdict=late
  printf '%s\t' "$begun" "$over" "$(since_start)" "$LIMIT" "${1//_/ }" "$DETAIL" >>"$EVENTS_FILE"
  echo "$verdict" >>"$EVENTS_FILE"
  local outcome="back after ${BACK_MS:-} ms"
  case $verdict in
    late) outcome+=", LATE" ;;
    lost) outcome="NO TRAFFIC after 60 s" ;;
  esac
  line "$(clock)  ${1//_/ }${DETAIL:+, $DETAIL}: $outcome"
}

clock() { printf '%d:%02d' $((($(now_ms) - STARTED) / 60000)) $((($(now_ms) - STARTED) / 1000 % 60)); }
line() { # TEXT : stays
  [[ ! -t 1 ]] || printf '\r\033[K'
  echo "$1"
}
progress() { # TEXT : on a terminal, until the next
  [[ ! -t 1 ]] || printf '\r\033[K... %s of %s:00, %s; wg1 holds %s KB' "$(clock)" "$MINUTES" "$1" "$(rss_kb "${DAEMON[wg1]}")"
}

# Whether everything answers at the end, and no process ended that was not killed.
the_end() {
  local iface pid verdict=ok ended=
  sleep $((PERIOD + 1)) # the last event has a sample after it
  back 10 || verdict=lost
  at_the_end "every way answers" "" $verdict
  for iface in wg1 wg2 wg3; do
    [[ $(daemon_of $iface) == "${DAEMON[$iface]}" ]] || ended+=" the daemon of $iface"
    [[ -d /proc/${PID[$iface]} ]] || ended+=" the supervisor of $iface"
  done
  alive wg4 || ended+=" wireguard-go"
  for pid in "$SAMPLER" "${LASTING[@]}"; do [[ -d /proc/$pid ]] || ended+=" a part of the soak"; done
  at_the_end "all that was not killed runs" "${ended# }" "$([[ $ended ]] && echo ended || echo ok)"
  kill "$SAMPLER" 2>/dev/null || true
  wait "$SAMPLER" 2>/dev/null || true
}
at_the_end() { # WHAT DETAIL VERDICT
  local when
  when=$(since_start)
  printf '%s\t' "$when" "$when" "$when" 0 "$1" "$2" >>"$EVENTS_FILE"
  echo "$3" >>"$EVENTS_FILE"
}

judge() {
  python3 "$here/judge" "$SCENARIO_LOGS" ||
    fail "the soak has a failure (above, and in ${SCENARIO_LOGS#"$REPO"/})"
}
