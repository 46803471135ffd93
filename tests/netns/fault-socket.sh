#!/usr/bin/env bash
# The UAPI socket disappears: if it is deleted, alone or with its folder, the daemon ends and says so; if it is moved, the daemon stays.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.bash"
need nc

two_hosts
tunnel v4
before_fault
on h1 wg showconf wg1 >"$WORK/wg1.conf"
restart() {
  daemon h1 wg1
  on h1 wg setconf wg1 "$WORK/wg1.conf"
  wg_address h1 wg1 10.9.0.1/24 fd09::1/64
}
ended() { # WHAT WORDS
  wait_for 5 "the daemon to end: $1" gone wg1
  status=0
  wait "${PID[wg1]}" || status=$?
  expect "$1: status" 0 $status
  tail -n 1 "$SCENARIO_LOGS/wg1.log" | grep -q "$2" || fail "$1: the last word in the log is: $(tail -n 1 "$SCENARIO_LOGS/wg1.log")"
  [[ ! -e /run/wireguard/wg1.sock ]] || fail "$1: there is a socket"
  restart
  after_fault 2 "$1, and a new daemon"
}
rm /run/wireguard/wg1.sock
ended "the socket deleted" "the socket was deleted"

say "the folder deleted: both daemons end"
rm -rf /run/wireguard
wait_for 5 "wg2 to end" gone wg2
[[ ! -e /run/wireguard ]] || fail "the folder is there again"
daemon h2 wg2
on h2 wg set wg2 listen-port 50002 private-key "$WORK/h2.key" peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128 endpoint 192.0.2.1:50001
wg_address h2 wg2 10.9.0.2/24 fd09::2/64
ended "the folder deleted" "the socket was deleted"

say "a socket of the same name in its place"
on h1 nc -lU /run/wireguard/other </dev/null >/dev/null &
wait_for 5 "another socket" test -S /run/wireguard/other
mv /run/wireguard/other /run/wireguard/wg1.sock
wait_for 5 "the daemon to end" gone wg1
[[ -S /run/wireguard/wg1.sock ]] || fail "the daemon has removed a socket that is not its own"
rm /run/wireguard/wg1.sock
ended "the socket replaced" "the socket was deleted"

say "the folder moved away: the tunnel goes on, out of reach, until the folder is back"
mv /run/wireguard /run/elsewhere
mkdir /run/wireguard
pings h1 10.9.0.2
expect_failure "a second daemon of that name" on h1 timeout 5 "$TUNNEL_DAEMON" -f wg1
alive wg1 || fail "the daemon ended with the folder moved away"
rm -rf /run/wireguard
mv /run/elsewhere /run/wireguard
after_fault 2 "the folder moved away and back"
