#!/usr/bin/env bash
# timeout: 60
# D11: a signal to the process alone ends `up` soon, while a name is looked up as while a command runs.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
# A name server that does not answer.
own_file /etc/nsswitch.conf <<<"hosts: dns"
resolver() { echo "nameserver 192.0.2.53" >"$WORK/etc/resolv.conf"; }
resolver

# The process of a turn in the background: the shell that evaluates wg-quick, or the tool.
process_of() { pgrep -f -o "$1"; } # PATTERN
started=0
launch() { # WHO PATTERN : starts `up wg1`, waits until its process is there; its id is in $MAIN
  # Background jobs of a script ignore SIGINT, and so would what they start.
  started=$(now_ms)
  (
    trap - INT
    STATUS=0
    started_turn "$1" up wg1 >"$WORK/said" 2>&1 || STATUS=$?
    echo "$STATUS" >"$WORK/status"
  ) &
  rm -f "$WORK/status"
  wait_for 5 "$1 to start" process_of "$2"
  MAIN=$(process_of "$2")
}
has_ended() { [[ -s $WORK/status ]]; }
NAMED="vpn.example.com:50002"

say "while a name is looked up"
ENDPOINT=$NAMED tunnel_file wg1 10.9.0.2/32
if has_original; then
  launch original "^(/bin/)?bash $WORK/bin/wg-quick up|^bash .*wg-quick up"
  wait_for 5 "the original to look the name up" pgrep -x wg
  kill -INT "$MAIN"
  sleep 3
  if has_ended; then fail "the original: expected it to go on for all of the look-up, it ended"; fi
  say "the original: still there 3 s after SIGINT"
  kill -KILL "$MAIN"
  pkill -x wg || true
  new_h1
  resolver
fi
for who in wg-quick linerate; do
  for signal in INT TERM; do
    remember
    launch $who "^$LINERATE.* up wg1"
    sleep 0.2
    kill -$signal "$MAIN"
    wait_for 5 "$who to end after SIG$signal" has_ended
    [[ $(cat "$WORK/status") != 0 ]] || fail "$who: expected a status other than 0"
    note "$who up, SIG$signal while a name is looked up: it ended $(($(now_ms) - started)) ms after its start"
    as_before "$who after SIG$signal"
  done
done

say "while a command runs"
tunnel_file wg1 0.0.0.0/0,::/0 "PreUp = touch $WORK/effect" "PostUp = touch $WORK/runs; sleep 1000" "PostDown = rm $WORK/effect"
is_running() { [[ -e $WORK/runs ]]; }
if has_original; then
  launch original "^(/bin/)?bash $WORK/bin/wg-quick up|^bash .*wg-quick up"
  wait_for 10 "the original to run PostUp" is_running
  kill -INT "$MAIN"
  sleep 3
  if has_ended; then fail "the original: expected it to wait for the command, it ended"; fi
  say "the original: still there 3 s after SIGINT"
  kill -KILL "$MAIN"
  pkill -x sleep || true
  new_h1
  rm -f "$WORK/effect" "$WORK/runs"
fi
for who in wg-quick linerate; do
  for signal in INT TERM HUP; do
    remember
    launch $who "^$LINERATE.* up wg1"
    wait_for 10 "$who to run PostUp" is_running
    kill -$signal "$MAIN"
    wait_for 5 "$who to end after SIG$signal" has_ended
    [[ $(cat "$WORK/status") != 0 ]] || fail "$who: expected a status other than 0"
    is_gone wg1
    as_before "$who after SIG$signal"
    # As in the original, no command runs when wg-quick's up is undone.
    left=$([[ -e $WORK/effect ]] && echo yes || echo no)
    expect "$who: the effect of PreUp is left" $([[ $who == wg-quick ]] && echo yes || echo no) "$left"
    rm -f "$WORK/effect"
    rm "$WORK/runs"
    pkill -x sleep || true
  done
done

say "while resolvconf hangs"
mkdir "$WORK/hanging"
cat >"$WORK/hanging/resolvconf" <<END
#!/bin/bash
echo "\$*" >>"$WORK/resolvconf"
[[ \$1 == -a ]] && touch "$WORK/runs"
[[ \$1 == -a || -e $WORK/hangs ]] && sleep 1000
exit 0
END
chmod +x "$WORK/hanging/resolvconf"
PATH=$WORK/hanging:$PATH
tunnel_file wg1 10.9.0.2/32 "DNS = 192.0.2.53"
hangs_for() { # WHO : up, with a SIGTERM while the name servers are set; how long it took then is in $TOOK
  local sent
  launch "$1" "^$LINERATE.* up wg1"
  wait_for 10 "$1 to run resolvconf" is_running
  sent=$(now_ms)
  kill -TERM "$MAIN"
  wait_for 8 "$1 to end after SIGTERM" has_ended
  TOOK=$(($(now_ms) - sent))
  [[ $(cat "$WORK/status") != 0 ]] || fail "$1: expected a status other than 0"
  is_gone wg1
  rm "$WORK/runs"
}
for who in wg-quick linerate; do
  remember
  hangs_for $who
  as_before "$who after SIGTERM"
  expect "$who: what resolvconf was told last" "-d wg1 -f" "$(tail -n 1 "$WORK/resolvconf")"
  note "$who up, SIGTERM while resolvconf hangs: it ended after $TOOK ms"
  expect "programs left" "" "$(pgrep -f "$WORK/hanging" || true)"

  # What cannot be undone soon is left for `down`.
  touch "$WORK/hangs"
  hangs_for $who
  note "the same, and it hangs when the name servers are taken back: it ended after $TOOK ms"
  rm "$WORK/hangs"
  good $who down wg1
  as_before "$who down"
done
