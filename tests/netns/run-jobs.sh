#!/usr/bin/env bash
# `linerate run` in a shell at a terminal: ^Z, fg and bg, changes of the window, ^C, kill, and a terminal that is closed, as without it.
source "$(dirname "$0")/lib.sh"
need script
source "$(dirname "$0")/run.bash"

mkfifo "$WORK/keys"
exec 3<>"$WORK/keys"
: >"$WORK/said"
(cd / && exec script -qec "exec $(printf '%q ' "${as_user[@]}" PS1= HISTFILE= bash --norc --noprofile --noediting -i)" /dev/null <"$WORK/keys" >"$WORK/said" 2>/dev/null) &
terminal=$!
typed() { printf '%s\n' "$*" >&3; }
# A line that a terminal ends has a carriage return.
says() { wait_for 10 "the terminal to say $1" grep -qE "^$1.?$" "$WORK/said"; } # PATTERN
state() { awk '{ print $3 }' "/proc/$1/stat"; } # PID
stopped() { [[ $(state "$1") == T ]]; }
goes() { ! stopped "$1"; }

say "^Z stops the command alone, and fg goes on"
# shellcheck disable=SC2016
typed "$tool run work --" 'sh -c '\''trap "echo resized \$(stty size)" WINCH; echo ready $$; while :; do sleep 0.1; done'\'
says 'ready [0-9]+'
command=$(pgrep -u 1000 -x sh | head -n 1)
daemon=$(daemons)
expect "daemons" 1 "$(wc -w <<<"$daemon")"
printf '\032' >&3
wait_for 10 "the command to stop" stopped "$command"
wait_for 10 "the shell to say so" grep -q Stopped "$WORK/said"
goes "$daemon" || fail "the daemon was stopped, too"
typed fg
wait_for 10 "the command to go on" goes "$command"

say "it learns of another size of the window"
stty -F "$(readlink "/proc/$command/fd/0")" rows 44 cols 111
says 'resized 44 111'

say "^C ends it, and the shell knows by what"
printf '\003' >&3
# shellcheck disable=SC2016
typed 'echo "status $?"'
says 'status 130'
wait_for 10 "the daemon to end" no_daemons

say "in the background, by its job"
typed "$tool run work -- sleep 100 &"
wait_for 10 "sleep" pgrep -u 1000 -x sleep
# shellcheck disable=SC2016
typed 'kill %1; wait %1; echo "ended $?"'
says 'ended 143'
wait_for 10 "the daemon to end" no_daemons

say "the terminal is closed"
typed "$tool run work -- sleep 100"
wait_for 10 "sleep" pgrep -u 1000 -x sleep
kill -KILL $terminal
wait $terminal 2>/dev/null || true
# Its shell and the command learn of it one after the other.
wait_for 10 "the shell and the command to end" bash -c '! pgrep -u 1000'
nothing_left
