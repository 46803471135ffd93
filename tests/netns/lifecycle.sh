#!/usr/bin/env bash
# timeout: 60
# How a daemon starts and how it ends: into the background once it answers; by signal, by its socket, by its interface.
source "$(dirname "$0")/lib.sh"

two_hosts
key h1
no_link() { ! ip -n h1 link show wg1 >/dev/null 2>&1; }
no_socket() { [[ ! -e /run/wireguard/wg1.sock ]]; }
cleaned_up() { # WHAT
  wait_for 5 "the daemon to end after $1" gone wg1
  wait_for 2 "the interface to go after $1" no_link
  wait_for 2 "the socket to go after $1" no_socket
  status=0
  wait "${PID[wg1]}" || status=$?
  say "ended after $1, status $status, and left nothing behind"
}

for signal in TERM INT; do
  daemon h1 wg1
  kill -$signal "${PID[wg1]}"
  cleaned_up "SIG$signal"
  expect "exit status" 0 $status
done
daemon h1 wg1
rm /run/wireguard/wg1.sock
cleaned_up "the removal of its socket"
daemon h1 wg1
ip -n h1 link del wg1
cleaned_up "the removal of its interface"
daemon h1 wg1
ip -n h1 link set wg1 up
ip -n h1 link del wg1
cleaned_up "the removal of its interface while it was up"

# The socket and its folder, and who may use them.
daemon h1 wg1
expect "mode of the folder" 755 "$(stat -c %a /run/wireguard)"
expect "mode of the socket" 700 "$(stat -c %a /run/wireguard/wg1.sock)"

# The name is taken: one sentence, and the first daemon is unharmed.
if on h1 timeout 5 "$TUNNEL_DAEMON" -f wg1 >"$WORK/second" 2>&1; then fail "a second daemon started for wg1"; fi
[[ -s $WORK/second ]] || fail "a second daemon for wg1 ended without a word"
say "a second one says: $(tail -n 1 "$WORK/second")"
on h1 wg set wg1 private-key "$WORK/h1.key" listen-port 50001
expect "port" 50001 "$(on h1 wg show wg1 listen-port)"
stop_daemon wg1

# A socket that a killed daemon left behind is no obstacle.
daemon h1 wg1
kill -KILL "${PID[wg1]}"
wait_for 5 "the killed daemon to be gone" gone wg1
[[ -S /run/wireguard/wg1.sock ]] || fail "expected the killed daemon's socket to be there"
wait_for 5 "its interface to go" no_link
daemon h1 wg1
stop_daemon wg1

# Without -f: returns as soon as the interface answers, and lives on.
on h1 timeout 10 "$TUNNEL_DAEMON" wg1 </dev/null >"$WORK/daemonised" 2>&1 || fail "starting in the background: $(cat "$WORK/daemonised")"
on h1 wg show wg1 >/dev/null || fail "wg1 does not answer right after the daemon went into the background"
on h1 wg set wg1 private-key "$WORK/h1.key" listen-port 50001
ip -n h1 link set wg1 up
rm /run/wireguard/wg1.sock
wait_for 5 "the background daemon to end" no_link

# A signal before it answers ends the process in the background, too, and first: nobody makes a file after that. Here it
# waits for a lock, as long as the daemon of the same name before it might hold that.
mkdir "$WORK/usage"
flock "$WORK/usage/wg1.usage-a" sleep 30 &
lock=$!
wait_for 5 "the lock" eval '! flock -n "$WORK/usage/wg1.usage-a" true'
waits() { pgrep -f "^linerated wg1\$" >"$WORK/second.pid" && [[ $(readlink "/proc/$(head -n 1 "$WORK/second.pid")/fd/"*) == *"$WORK/usage/wg1.usage-a"* ]]; }
LINERATE_USAGE=$WORK/usage ip netns exec h1 "$TUNNEL_DAEMON" wg1 </dev/null >"$WORK/interrupted" 2>&1 &
first=$!
wait_for 5 "the process in the background to wait for the lock" waits
kill -TERM "$first"
status=0
wait "$first" || status=$?
[[ $status != 0 ]] || fail "interrupted, but it exited with 0"
[[ ! -d /proc/$(head -n 1 "$WORK/second.pid") ]] || fail "the process in the background was there when the first one had ended"
no_link || fail "the interface was there when the first process had ended"
no_socket || fail "the socket was there when the first process had ended"
kill "$lock"
wait "$lock" || true

# The environment's way of saying -f.
WG_PROCESS_FOREGROUND=1 ip netns exec h1 "$TUNNEL_DAEMON" wg1 >>"$SCENARIO_LOGS/wg1.log" 2>&1 &
PID[wg1]=$!
wait_for 5 "the daemon to answer" answers h1 wg1
alive wg1 || fail "WG_PROCESS_FOREGROUND=1: it went into the background"
stop_daemon wg1

# Nonsense gets an answer and a status.
for words in "" "a-name-that-is-too-long-for-linux" "-x wg1"; do
  # shellcheck disable=SC2086
  expect_failure "arguments: '$words'" on h1 timeout 5 "$TUNNEL_DAEMON" $words
done
