#!/usr/bin/env bash
# timeout: 60
# `down` leaves the host as it was: twice, without the daemon, without the ledger, without the interface.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
ip -n h1 route add default via 192.0.2.2
echo "nameserver 192.0.2.54" >"$WORK/etc/resolv.conf"

down_after() { # WHO WHAT COMMAND...
  good "$1" up wg1
  "${@:3}"
  good "$1" down wg1
  is_gone wg1
  as_before "$1 down after: $2"
}
end_daemon() {
  kill -KILL "$(daemon_of wg1)"
  wait_for 5 "the daemon to end" no_daemon wg1
}
dies_in_the_middle() { # WHO
  local daemon turn
  good "$1" up wg1
  daemon=$(daemon_of wg1)
  kill -STOP "$daemon"
  good "$1" down wg1 &
  turn=$!
  wait_for 5 "wg1 to be forgotten" test ! -e /run/linerate/wg1.json
  kill -KILL "$daemon"
  wait $turn
  is_gone wg1
  as_before "$1 down while the daemon dies"
}
for who in wg-quick linerate; do
  tunnel_file wg1 0.0.0.0/0,::/0 "DNS = 192.0.2.53" "PostDown = touch $WORK/down"
  remember
  say "$who: down twice, and of what never was"
  down_after $who nothing true
  bad $who down wg1
  said "$who, twice" "is not a WireGuard interface"
  as_before "$who down twice"
  bad $who down wg7
  said "$who, no file" "wg7.* does not exist"

  down_after $who "the daemon was killed" end_daemon
  dies_in_the_middle $who
  down_after $who "the interface was deleted" ip -n h1 link delete wg1
  down_after $who "the addresses and the rules were deleted" eval \
    'ip -n h1 addr flush dev wg1; ip -n h1 rule delete table main suppress_prefixlength 0; ip -n h1 -6 rule delete table main suppress_prefixlength 0'
  [[ -e $WORK/down ]] || fail "$who: PostDown was not run"
  say "$who: /run/linerate was wiped"
  # Who sets the name servers has its notes there as well, so that only the file can tell what was set.
  remember
  down_after $who "/run/linerate was wiped" rm -rf /run/linerate
  tunnel_file wg1 10.9.0.2/32,192.168.77.0/24 "#! RouteConflict = metric"
  remember
  down_after $who "/run/linerate was wiped, with a route beside another" rm -rf /run/linerate
  tunnel_file wg1 0.0.0.0/0 "#! KillSwitch = true"
  remember
  down_after $who "/run/linerate was wiped, with a kill switch" rm -rf /run/linerate

  say "$who: a signal while a command runs does not keep the rest from being undone"
  tunnel_file wg1 0.0.0.0/0 "#! KillSwitch = true" "PreDown = touch $WORK/runs; sleep 1000"
  remember
  good $who up wg1
  { started_turn $who down wg1 >"$WORK/said" 2>&1 || true; } &
  turn=$!
  wait_for 10 "PreDown to run" test -e "$WORK/runs"
  pkill -TERM -f "^$LINERATE.* down wg1"
  wait $turn
  is_gone wg1
  as_before "$who down that was interrupted"
  rm "$WORK/runs"
  pkill -x sleep || true
done
