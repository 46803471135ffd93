#!/usr/bin/env bash
# timeout: 120
# `linerate top` on a terminal while there is traffic: what it shows, and that it gives the terminal back however it ends.
source "$(dirname "$0")/lib.sh"
need tmux jq

two_hosts
tunnel v4
pings h1 10.9.0.2
on h1 ping -q -n -i 0.2 -s 1000 10.9.0.2 >/dev/null &

export LANG=C.UTF-8 LC_ALL=C.UTF-8
terminal() { tmux -f /dev/null -S "$WORK/tmux" "$@"; }
terminal new-session -d -x 80 -y 24 "ip netns exec h1 env TERM=xterm-256color PS1='ready> ' bash --norc --noprofile"
screen() { terminal capture-pane -p; }
type_in() { terminal send-keys "$@"; }
shows() { screen | grep -qE -- "$1"; } # REGULAR-EXPRESSION
shown() { # SECONDS REGULAR-EXPRESSION
  local until=$(($(now_ms) + $1 * 1000))
  until shows "$2"; do
    (($(now_ms) < until)) || { screen && fail "timed out waiting for the screen to show $2"; }
    sleep 0.1
  done
  say "on the screen: $(screen | grep -m 1 -E -- "$2")"
}
settings() { stty -g -F "$(terminal display-message -p '#{pane_tty}')"; }
is_back() { [[ $(settings) == "$before" ]] && [[ $(terminal display-message -p '#{alternate_on} #{cursor_flag}') == "0 1" ]]; }
given_back() { wait_for 30 "the terminal as it was, after $1" is_back && say "the terminal is as it was, after $1"; }
running() { pgrep -f "^$LINERATE top" >/dev/null; }
start() {
  type_in "$LINERATE top wg1" Enter
  shown 30 '^linerate top .* 1 connected'
}

shown 30 'ready>'
before=$(settings)
start
key=$(public h2)
like=${key//+/[+]} # in a regular expression
short=${key:0:8} && short=${short//+/[+]}
shown 30 "^wg1 +CPU +[0-9.]+%  rx +[0-9.]+kbit/s  tx +[0-9.]+kbit/s  1 peer"
shown 30 "^$short.* 192\.0\.2\.2:50002 +[0-9]s +[0-9]+s +[0-9.]+k +[0-9.]+k"
shown 30 '[▁▂▃▄▅▆▇█]{3}$'
screen >"$SCENARIO_LOGS/screen.log"

say "keys"
type_in h
shown 30 'linerate top: keys'
type_in x
shown 30 '^PEER'
type_in /nobody
shown 30 'No peer matches the filter'
type_in Escape
shown 30 "^$short"
type_in p
shown 30 'PAUSED'
type_in p

say "another size"
terminal resize-window -x 120 -y 30
shown 30 "^$like"
terminal resize-window -x 40 -y 10
shown 30 '^PEER +HEARD +RX +TX'
terminal resize-window -x 80 -y 24

say "suspended, and continued"
type_in C-z
shown 30 'Stopped'
given_back "Ctrl-Z"
type_in fg Enter
shown 30 '^linerate top'

say "stopped by a signal that it cannot see, and continued"
pkill -STOP -f "^$LINERATE top"
shown 30 'Stopped'
type_in fg Enter
wait_for 30 "the screen to be drawn anew" eval '! shows Stopped && shows "^linerate top"'
reads_keys() { stty -a -F "$(terminal display-message -p '#{pane_tty}')" | grep -q -- '-icanon'; }
wait_for 30 "keys to be read at once" reads_keys

say "the ways out"
type_in q
given_back q
start
type_in C-c
given_back Ctrl-C
for signal in TERM HUP INT QUIT; do
  start
  pkill -"$signal" -f "^$LINERATE top"
  given_back "SIG$signal"
  wait_for 30 "it to end" eval '! running'
done

say "without a terminal"
expect_failure "a pipe" on h1 "$LINERATE" top </dev/null
on h1 "$LINERATE" top wg1 --batch -n 2 -d 0.5 >"$WORK/batch"
expect "updates" 2 "$(grep -c '^20.*Z$' "$WORK/batch")"
grep -qE "^$like +wg1 +192\.0\.2\.2:50002 +[0-9]s +[0-9]+s +[0-9.]+k +[0-9.]+k$" "$WORK/batch" || fail "no rates: $(cat "$WORK/batch")"
on h1 "$LINERATE" top wg1 --json -n 2 -d 0.5 >"$WORK/json"
expect "the peer as JSON" "$key" "$(jq -r '.tunnels[0].peers[0].publicKey' "$WORK/json" | sort -u)"
expect_at_least "its rate, as JSON" 1 "$(jq -s '.[1].tunnels[0].peers[0].rates.sent' "$WORK/json")"
