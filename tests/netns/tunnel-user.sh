#!/usr/bin/env bash
# timeout: 120
# The daemon of a tunnel becomes the user that `up --user`, LINERATE_USER or the file names, in this order, also when the
# supervisor starts it again; commands of the file run as root. doctor has nothing to say against it.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need setpriv
setpriv --reuid nobody true 2>/dev/null || skip "no right to become nobody (run it as root)"

hosts_with_files
! grep 'does not offer all protection' "$SCENARIO_LOGS/wg2.log" || skip "this kernel or container does not offer all protection"
own_file /proc/swaps <<<"Filename Type Size Used Priority" # one in use is weak, and not what this is about
owner() { ps -o user= -p "$(daemon_of wg1)"; } # : the user of the daemon of wg1
for who in wg-quick linerate; do
  tunnel_file wg1 10.9.0.2/32 "#! User = nobody" "PostUp = id -un >$WORK/as"
  remember
  good $who up wg1
  expect "$who: the daemon's user, by the file" nobody "$(owner)"
  expect "$who: the user of a command of the file" root "$(cat "$WORK/as")"
  pings h1 10.9.0.2
  good $who down wg1
  is_gone wg1
  as_before "$who down"

  LINERATE_USER=daemon good $who up wg1
  expect "$who: the daemon's user, by the environment and not the file" daemon "$(owner)"
  good $who down wg1
  is_gone wg1

  tunnel_file wg1 10.9.0.2/32 "#! User = nobody-of-that-name"
  bad $who up wg1
  said "$who" "nobody-of-that-name"
  as_before "$who up with a user that is not there"
done
LINERATE_USER=daemon good linerate up wg1 --user nobody
expect "the daemon's user, by the command line" nobody "$(owner)"
good linerate doctor wg1 --security
said "doctor" "user +user [0-9]+ +ok"
pings h1 10.9.0.2
good linerate doctor wg1
said "doctor" "wg1: nothing wrong; 1 of 1 peers connected"
ip -n h1 link set wg1 down
bad linerate doctor wg1
said "doctor, an interface that is down" "fix: .*ip link set wg1 up"
good linerate down wg1
is_gone wg1

say "supervised"
tunnel_file wg1 10.9.0.2/32 "#! User = nobody"
at h1 "$LINERATE" up --supervise wg1 >"$WORK/supervisor" 2>&1 &
job=$!
carries() { on h1 ping -n -q -c 1 -W 1 10.9.0.2; }
wait_for 20 "wg1 to carry packets" carries # it is there before its routes are
first=$(daemon_of wg1)
kill -KILL "$first"
another() { local now && now=$(daemon_of wg1) && [[ $now != "$first" ]] && carries; }
wait_for 25 "a working tunnel of another daemon" another
expect "the user of the daemon that was started again" nobody "$(owner)"
kill -TERM "$(pgrep -o -f "^$LINERATE up --supervise")"
wait $job || true
is_gone wg1
