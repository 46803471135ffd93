#!/usr/bin/env bash
# timeout: 120
# Daemons and supervisors inherit nothing from the command that starts them: descriptors, pipes, terminal, folder, umask, environment.
source "$(dirname "$0")/lib.sh"
need flock nc script
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
printf '%s\n' "127.0.0.1 localhost" "192.0.2.2 h2.example.com" >"$WORK/etc/hosts"
ENDPOINT=h2.example.com:50002 tunnel_file wg1 10.9.0.2/32 # a name has a supervisor
tool=(nsenter --net=/run/netns/h1 "$LINERATE")
original=(env "WG_QUICK_USERSPACE_IMPLEMENTATION=$TUNNEL_DAEMON" nsenter --net=/run/netns/h1 "$WORK/bin/wg-quick")

# The supervisor ends a moment after its tunnel.
has_ended() { ! supervisor_of wg1 >/dev/null; }
is_down() { is_gone wg1 && wait_for 15 "the supervisor to end" has_ended; }
released() { flock -n "$WORK/lock" true; }
keeps_nothing() { # WHAT PID
  expect "$1: descriptors of the caller" "" \
    "$(find "/proc/$2/fd" -lname "$WORK/*" -printf '%l ' ; find "/proc/$2/fd" -lname 'pipe:*' -printf '%l ')"
  expect "$1: folder" / "$(readlink "/proc/$2/cwd")"
  expect "$1: umask" 0022 "$(awk '/^Umask/ { print $2 }' "/proc/$2/status")"
  expect "$1: terminal" "?" "$(ps -o tty= -p "$2" | tr -d ' ')"
  expect "$1: session" "$2" "$(ps -o sid= -p "$2" | tr -d ' ')"
  expect "$1: SIGUSR1 is blocked" 0 $((0x$(awk '/^SigBlk/ { print $2 }' "/proc/$2/status") & 0x200))
  expect "$1: environment" "" "$(tr '\0' '\n' <"/proc/$2/environ" | grep -E '^(A_SECRET|OLDPWD)=' || true)"
}
mkdir "$WORK/folder"

for who in linerate wg-quick original; do
  case $who in
    linerate) command=("${tool[@]}") ;;
    wg-quick) command=("${tool[@]}" wg-quick) ;;
    original) has_original || continue; command=("${original[@]}") PATH=$WORK/bin:$PATH ;;
  esac
  say "$who: a lock of the caller"
  (cd "$WORK/folder" && umask 077 && exec 9>"$WORK/lock" 11<>"$WORK/lock" && flock 9 && export A_SECRET=x && env --block-signal=USR1 "${command[@]}" up wg1) >"$WORK/said" 2>&1
  released || fail "$who: the lock is still held: $(fuser -v "$WORK/lock" 2>&1 | tail -n 3)"
  say "$who: the lock is free"
  wait_for 5 "the daemon to lead its session" daemon_of wg1
  keeps_nothing "$who: daemon" "$(daemon_of wg1)"
  if [[ $who != original ]]; then
    wait_for 5 "its supervisor" supervisor_of wg1
    keeps_nothing "$who: supervisor" "$(supervisor_of wg1)"
  fi
  "${command[@]}" down wg1 >>"$WORK/said" 2>&1
  is_down

  say "$who: a pipe of the caller, with a log"
  LOG_LEVEL=debug timeout 20 bash -c '"$@" up wg1 2>&1 | cat >"$0"' "$WORK/said" "${command[@]}" ||
    fail "$who: up | cat has not ended: $(tail -n 3 "$WORK/said")"
  pings h1 10.9.0.2
  "${command[@]}" down wg1 >>"$WORK/said" 2>&1
  is_down

  say "$who: a file of the caller's log is written on, and its terminal left"
  LOG_LEVEL=debug script -qefc "${command[*]@Q} up wg1 2>$WORK/log" /dev/null </dev/null >/dev/null
  keeps_terminal=$(ps -o tty= -p "$(daemon_of wg1)" | tr -d ' ')
  expect "$who: the daemon's terminal" "?" "$keeps_terminal"
  before=$(wc -c <"$WORK/log")
  pings h1 10.9.0.2
  on h1 wg set wg1 peer "$(public h1)x" 2>/dev/null || on h1 wg show wg1 >/dev/null
  "${command[@]}" down wg1 >>"$WORK/said" 2>&1
  is_down
  expect_at_least "$who: bytes of the log" $((before + 1)) "$(wc -c <"$WORK/log")"
done

say "a daemon that a service has started again"
nc -lkuU "$WORK/notify" >"$WORK/notified" 2>/dev/null </dev/null &
wait_for 30 "the service manager" test -S "$WORK/notify"
(exec 9>"$WORK/lock" && NOTIFY_SOCKET=$WORK/notify exec env --block-signal=USR1 "${tool[@]}" up --supervise wg1) >>"$SCENARIO_LOGS/supervise.log" 2>&1 &
service=$!
wait_for 10 "the tunnel" grep -qa READY=1 "$WORK/notified"
before=$(daemon_of wg1)
kill -KILL "$before"
another() { local pid && pid=$(daemon_of wg1) && [[ $pid != "$before" ]]; }
wait_for 10 "another daemon" another
# The daemon has a pipe to the supervisor until it reports that it is ready.
has_no_pipe() { ! find "/proc/$(daemon_of wg1)/fd" -lname 'pipe:*' | grep -q .; }
wait_for 10 "the new daemon to be ready" has_no_pipe
keeps_nothing "started again" "$(daemon_of wg1)"
kill -TERM "$service"
wait "$service" || true
is_down

say "descriptors that are handed over stay"
handed() { (exec 9>"$WORK/lock" && WG_TUN_FD=9 at h1 "$TUNNEL_DAEMON" wg1) >"$WORK/said" 2>&1; }
expect_failure "a lock as a TUN device" handed
said "which the daemon has looked at" "not an open TUN device"

say "a caller that ignores the end of its children"
tunnel_file wg1 10.9.0.2/32 "PostUp = true"
env --ignore-signal=CHLD "${tool[@]}" up wg1 >"$WORK/said" 2>&1 || fail "up: $(tail -n 1 "$WORK/said")"
env --ignore-signal=CHLD "${tool[@]}" down wg1 >"$WORK/said" 2>&1 || fail "down: $(tail -n 1 "$WORK/said")"
is_down

say "the command of linerate run inherits the caller's descriptors, and its daemon does not"
ENDPOINT=192.0.2.2:50002 tunnel_file wg1 10.9.0.2/32
(exec 9>"$WORK/lock" && cd "$WORK/folder" && exec "${tool[@]}" run /etc/wireguard/wg1.conf -- sh -c 'echo here >&9; sleep 1000') >"$WORK/said" 2>&1 &
command=$!
wait_for 10 "the command of linerate run" grep -q here "$WORK/lock"
keeps_nothing "run: daemon" "$(daemon_of wg1)"
pkill -x -f "sleep 1000"
wait "$command" || true
