# The events: what each does, and in its first line how soon traffic has to be back after it. An event leaves what it
# chose in DETAIL, and another bound than two seconds in LIMIT. Where the bound is longer, the protocol's own timers are
# why: an initiation that was lost is sent again after 5 s and up to 1/3 s (REKEY_TIMEOUT, and its jitter).

EVENTS=(
  kill_ours roam_address roam_port reload_files change_key link_down_up cut lose reorder garbage uapi_clients crowd
  kill_theirs
)

CUT=20 BAD_LINE=10 FLOOD=5
[[ -z $ONCE ]] || CUT=3 BAD_LINE=3 FLOOD=2
PAUSE_MIN=12 PAUSE_MORE=30 # seconds between two events
KILL_OURS_EVERY=480        # seconds
LEFT_ALONE=2100            # seconds at the end in which ours are not killed, as long as a verdict takes and a bit more

# A supervisor reads every ten seconds where the peers are, so without pauses ours has to be killed before anything moves.
shuffle() { # leaves the events in ORDER (not in a subshell, which would not move RANDOM on)
  local i j other
  ORDER=("${EVENTS[@]}")
  [[ -z $ONCE ]] || return 0
  for ((i = ${#ORDER[@]} - 1; i > 0; i--)); do
    j=$((RANDOM % (i + 1))) other=${ORDER[i]}
    ORDER[i]=${ORDER[j]} ORDER[j]=$other
  done
}
choose() { # WORD... : leaves one in CHOICE
  local choices=("$@")
  CHOICE=${choices[RANDOM % $#]}
}
rest_between_events() { # fails when there is no time left for another event
  local until=$(($(now_ms) + (PAUSE_MIN + RANDOM % PAUSE_MORE) * 1000))
  while (($(now_ms) < until)); do
    progress "at rest"
    sleep 1
  done
  (($(now_ms) < DEADLINE))
}
is_due() { # EVENT : all but one always are
  [[ $1 == kill_ours && -z $ONCE ]] || return 0
  local now
  now=$(now_ms)
  ((now - KILLED_OURS >= KILL_OURS_EVERY * 1000)) &&
    ((DEADLINE - now >= LEFT_ALONE * 1000 || MINUTES * 60 <= LEFT_ALONE))
}

event_roam_address() { # after 2 s
  choose e1 e2 f1
  local at=h${CHOICE: -1} old=${AT[$CHOICE]} new=${AT[$CHOICE]}1 bits=24
  [[ $old != *[.:][0-9]1 ]] || new=${old%1}
  [[ $old != *:* ]] || bits=64
  DETAIL="$CHOICE from $old to $new"
  AT[$CHOICE]=$new
  address "$at" "$CHOICE" "$new/$bits"
  ip -n "$at" addr del "$old/$bits" dev "$CHOICE"
}

event_roam_port() { # after 2 s
  choose wg1 wg2 wg3
  local old=${PORT[$CHOICE]}
  PORT[$CHOICE]=$((old < 50010 ? old + 10 : old - 10))
  DETAIL="$CHOICE from $old to ${PORT[$CHOICE]}"
  on "$(host_of "$CHOICE")" wg set "$CHOICE" listen-port "${PORT[$CHOICE]}"
}

event_reload_files() { # after 2 s
  choose peer allowed keepalive psk
  DETAIL=$CHOICE
  case $CHOICE in
    peer) MORE_PEER=$([[ $MORE_PEER ]] || echo yes) ;;
    allowed) MORE_ALLOWED=$([[ $MORE_ALLOWED ]] || echo ,10.98.0.0/24,fd98::/64) ;;
    keepalive) KEEPALIVE=$((12 - KEEPALIVE)) ;;
    psk) PSK=$([[ $PSK ]] || echo yes) && on h3 wg set wg4 peer "$(public h1b)" preshared-key "$(psk_file)" ;;
  esac
  reload wg2 wg1 wg3
}

event_change_key() { # after 7 s
  LIMIT=7
  choose wg2 wg4
  DETAIL="$CHOICE"
  case ${KEY[$CHOICE]} in
    *-other) KEY[$CHOICE]=${KEY[$CHOICE]%-other} ;;
    *) KEY[$CHOICE]+=-other ;;
  esac
  case $CHOICE in
    wg2) reload wg2 wg1 ;;
    wg4) on h3 wg set wg4 private-key "$WORK/${KEY[wg4]}.key" && reload wg3 ;;
  esac
}

event_link_down_up() { # after 2 s
  choose wg1 wg2 wg3
  DETAIL=$CHOICE
  ip -n "$(host_of "$CHOICE")" link set "$CHOICE" down
  sleep 1
  ip -n "$(host_of "$CHOICE")" link set "$CHOICE" up
}

event_cut() { # after 25 s
  LIMIT=25
  bad_line "$CUT" drop
}

event_lose() { # after 7 s
  LIMIT=7
  bad_line $BAD_LINE numgen random mod 100 '<' 5 drop
}

# For as long, what arrives at both ends of a cable meets this rule.
bad_line() { # SECONDS RULE...
  choose "e1 e2" "f1 f3"
  local dev ends
  read -ra ends <<<"$CHOICE"
  DETAIL="between ${ends[0]} and ${ends[1]}, $1 s"
  for dev in "${ends[@]}"; do rule "h${dev: -1}" in iifname "$dev" "${@:2}"; done
  sleep "$1"
  for dev in "${ends[@]}"; do unblock "h${dev: -1}"; done
}

event_reorder() { # after 2 s
  choose e1 e2 f1 f3
  DETAIL="what leaves by $CHOICE, $BAD_LINE s"
  local at=h${CHOICE: -1}
  # One in twenty takes a lane in which there is a queue.
  tc -n "$at" qdisc add dev "$CHOICE" root handle 1: htb default 1
  tc -n "$at" class add dev "$CHOICE" parent 1: classid 1:1 htb rate 10gbit quantum 60000
  tc -n "$at" class add dev "$CHOICE" parent 1: classid 1:2 htb rate 8mbit burst 3k cburst 3k
  rule "$at" out oifname "$CHOICE" numgen random mod 20 0 meta priority set 1:2
  sleep $BAD_LINE
  unblock "$at"
  tc -n "$at" qdisc del dev "$CHOICE" root
}

# Datagrams of every type and of any length, and a true initiation from before, again and again.
event_garbage() { # after 2 s
  DETAIL="$FLOOD s"
  ip netns exec x bash -c '
    until=$((${EPOCHREALTIME/./} + $1 * 1000000))
    while ((${EPOCHREALTIME/./} < until)); do
      for port in "${@:2}"; do
        to=/dev/udp/203.0.113.1/$port
        for type in 0 1 2 3 4 5; do
          for size in 1 28 60 88 144 1000; do printf "\\x$type\0\0\0%0${size}d" $RANDOM >$to; done
        done
        for _ in {1..10}; do cat "$0" >$to; done
      done
      sleep 0.02
    done' "$WORK/initiation" $FLOOD "${PORT[wg1]}" "${PORT[wg3]}"
}

event_uapi_clients() { # after 2 s
  choose wg1 wg2 wg3
  DETAIL="50 of $CHOICE at once, and 5 that stall"
  local i clients=()
  for i in {1..5}; do
    { printf 'set=1\nprivate_key=00' && sleep 2; } | timeout 3 nc -U "/run/wireguard/$CHOICE.sock" >/dev/null || true &
    clients+=($!)
  done
  for i in {1..50}; do
    wg show "$CHOICE" dump >/dev/null &
    clients+=($!)
  done
  wait "${clients[@]}" || fail "a UAPI client was turned away"
}

event_crowd() { # after 2 s
  choose wg1 wg3
  DETAIL="200 peers come to $CHOICE and go"
  wg addconf "$CHOICE" "$WORK/crowd"
  # shellcheck disable=SC2046
  wg set "$CHOICE" $(awk '/^PublicKey/ { print "peer", $3, "remove" }' "$WORK/crowd")
}

event_kill_theirs() { # after 2 s
  DETAIL=wireguard-go
  kill -KILL "${PID[wg4]}"
  wait "${PID[wg4]}" 2>/dev/null || true
  wait_for 5 "its interface to go" eval '! ip -n h3 link show wg4'
  rm -f /run/wireguard/wg4.sock
  theirs_up
}

event_kill_ours() { # after 5 s
  LIMIT=5
  DETAIL="wg2, whose supervisor restarts it"
  local before=${DAEMON[wg2]}
  KILLED_OURS=$(now_ms)
  kill -KILL "$before"
  another() { [[ $(daemon_of wg2) != "$before" && -n $(daemon_of wg2) ]]; }
  wait_for 10 "the supervisor to start another daemon for wg2" another
  DAEMON[wg2]=$(daemon_of wg2)
}
