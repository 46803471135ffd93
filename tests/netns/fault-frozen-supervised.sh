#!/usr/bin/env bash
# timeout: 240
# A frozen daemon is not taken for a dead one: no second one is started, its supervisor stays, and both carry on when it resumes.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
tunnel_file wg1 10.9.0.2/32
ENDPOINT=unknown.example.com:50002 tunnel_file wg3 10.8.0.2/32
sed -i 's/^Address.*/Address = 10.8.0.1\/24/' /etc/wireguard/wg3.conf
logged() { grep -c "$1" "$SCENARIO_LOGS/supervise.log" || true; }
# Any change in that directory wakes the supervisors.
stir() { touch "$WORK/stir" && mv "$WORK/stir" /run/linerate/; }

remember
at h1 "$LINERATE" up --supervise wg1 >"$SCENARIO_LOGS/supervise.log" 2>&1 &
service=$!
wait_for 20 "wg1 to carry packets" on h1 ping -n -q -c 1 -W 1 10.9.0.2 # it answers before its routes are there
good linerate up wg3
wait_for 5 "the background supervisor of wg3" supervisor_of wg3
supervisor=$(pgrep -o -f "up --supervise wg1\$") background=$(supervisor_of wg3)
daemons=("$(daemon_of wg1)" "$(daemon_of wg3)")
sleep 1 # until both wait again

# Each question has ten seconds for its answer.
kill -STOP "${daemons[@]}"
stir
sleep 25
expect "daemons of wg1 and wg3 meanwhile" "${daemons[*]}" "$(daemon_of wg1) $(daemon_of wg3)"
expect "deaths that were seen" 0 "$(logged 'the daemon has exited')"
expect "times that it was told" 1 "$(logged 'state of the tunnel unknown')"
expect "the background supervisor of wg3" "$background" "$(supervisor_of wg3)"
kill -CONT "${daemons[@]}"
pings h1 10.9.0.2
wait_for 30 "the supervisor to have an answer" eval "((\$(logged 'the daemon responds again') == 1))"

say "the background supervisor still looks names up"
echo "192.0.2.2 unknown.example.com" >>"$WORK/etc/hosts"
wait_for 45 "the address" eval '[[ $(endpoint h1 wg3) == 192.0.2.2:50002 ]]'
good linerate down wg3
is_gone wg3

say "a death after all"
kill -KILL "${daemons[0]}"
wait_for 25 "another daemon" eval "[[ -n \$(daemon_of wg1) && \$(daemon_of wg1) != ${daemons[0]} ]]"
wait_for 20 "traffic" on h1 ping -n -q -c 1 -W 1 10.9.0.2

say "SIGTERM while the daemon is frozen"
kill -STOP "$(daemon_of wg1)"
stir
sleep 1
kill -TERM "$supervisor"
wait "$service" || fail "the service ended with $?"
kill -CONT "$(daemon_of wg1)" 2>/dev/null || true
is_gone wg1
rm -f /run/linerate/stir
as_before "down while frozen"
