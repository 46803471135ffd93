#!/usr/bin/env bash
# timeout: 120
# `Spin` in the file reaches the daemon, also one that the supervisor starts again; LINERATE_SPIN takes precedence. It
# finds packets before it sleeps, and changes nothing at rest: the daemon is not woken.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
spin() { tr '\0' '\n' <"/proc/$(daemon_of wg1)/environ" | sed -n 's/^LINERATE_SPIN=//p'; } # : that of wg1's daemon
tunnel_file wg1 10.9.0.2/32 "#! Spin = 200"
good linerate up wg1
expect "microseconds, by the file" 200 "$(spin)"
on h1 ping -n -q -c 300 -i 0.002 -W 2 10.9.0.2
# The last data is answered by a keepalive after 10 seconds at most.
daemon=$(daemon_of wg1)
used() { echo "$(wakeups "$daemon") $(cpu_ticks "$daemon")"; }
is_at_rest() { local before && before=$(used) && sleep 5 && [[ $(used) == "$before" ]]; }
wait_for 40 "5 seconds without a context switch or CPU time of any thread" is_at_rest
pings h1 10.9.0.2
good linerate down wg1
is_gone wg1

LINERATE_SPIN=50 good linerate up wg1
expect "microseconds, by the environment and not the file" 50 "$(spin)"
good linerate down wg1
is_gone wg1

tunnel_file wg1 10.9.0.2/32 "#! Spin = 1001"
bad linerate up wg1
said "linerate" "0 to 1000"

# As if a core were always idle, whatever else this machine does.
tunnel_file wg1 10.9.0.2/32 "#! Spin = 1000"
LINERATE_HELPERS=always good linerate up wg1
looks() { printf 'stats=1\n\n' | uapi wg1 | awk -F= '$1 == "looks_work" { print $2 }'; }
is_found() { on h1 ping -n -q -c 50 -i 0.002 -W 2 10.9.0.2 >/dev/null && (($(looks) > 0)); }
wait_for 30 "packets that are found before the daemon sleeps" is_found
good linerate down wg1
is_gone wg1
tunnel_file wg1 10.9.0.2/32
LINERATE_HELPERS=always good linerate up wg1
on h1 ping -n -q -c 50 -i 0.002 -W 2 10.9.0.2
expect "packets found without Spin" 0 "$(looks)"
good linerate down wg1
is_gone wg1

say "supervised"
tunnel_file wg1 10.9.0.2/32 "#! Spin = 200"
at h1 "$LINERATE" up --supervise wg1 >"$WORK/supervisor" 2>&1 &
job=$!
carries() { on h1 ping -n -q -c 1 -W 1 10.9.0.2; }
wait_for 20 "wg1 to carry packets" carries # it is there before its routes are
first=$(daemon_of wg1)
kill -KILL "$first"
another() { local now && now=$(daemon_of wg1) && [[ $now != "$first" ]] && carries; }
wait_for 25 "a working tunnel of another daemon" another
expect "microseconds of the daemon that was started again" 200 "$(spin)"
kill -TERM "$(pgrep -o -f "^$LINERATE up --supervise")"
wait $job || true
is_gone wg1
