#!/usr/bin/env bash
# timeout: 240
# Our units under systemd itself: start, reload, dead daemons and supervisors, restart; stop runs PreDown in a working tunnel.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need systemctl

hosts_with_files

source "$(dirname "$0")/systemd.bash"
log=$SCENARIO_LOGS/service.log
for unit in linerate@ wg-quick@; do
  printf '%s\n' "StandardOutput=append:$log" "StandardError=append:$log" >>"$units/$unit.service.d/scenario.conf"
done
switch_on

# --- what its services do ------------------------------------------------------------------------------------------

echo "PreUp = nft list tables | grep -q linerate-wg1 && echo kill switch >>$WORK/runs || true
PostUp = echo up >>$WORK/runs
PreDown = ping -n -c 1 -w 5 10.9.0.2 >/dev/null && echo pre-down >>$WORK/runs
PostDown = ip link show %i >/dev/null 2>&1 || echo post-down >>$WORK/runs" >"$WORK/hooks"
touch "$WORK/runs"
ran() { # WHAT COMMANDS : since the last time
  expect "$1: commands that were run" "$2" "$(xargs <"$WORK/runs")"
  : >"$WORK/runs"
}
works() { on h1 ping -n -q -c 1 -w 1 10.9.0.2; }
works_anew() { [[ -n $(daemon_of wg1) && $(daemon_of wg1) != "$daemon" ]] && works; }
# Forgets the starts so far, of which systemd allows five within a minute. Without the unit in memory there are none.
start_afresh() { service reset-failed linerate@wg1 2>/dev/null || true; }
stops() { # UNIT
  service stop "$1"
  ran "stop of $1" "pre-down post-down"
  expect "state of $1" "inactive, success" "$(property "$1" ActiveState), $(property "$1" Result)"
  is_gone wg1
  as_before "stop of $1"
}

tunnel_file wg1 0.0.0.0/0,::/0 "#! KillSwitch = true" "$(<"$WORK/hooks")"
ip -n h1 route add default via 192.0.2.2
remember

say "start and reload"
service start linerate@wg1
wait_for 20 "a working tunnel" works
pings h1 10.9.0.2
pings h2 10.9.0.1
ran start up
daemon=$(daemon_of wg1)
echo "PersistentKeepalive = 25" >>/etc/wireguard/wg1.conf
service reload linerate@wg1
expect "keepalive after the reload" 25 "$(on h1 wg show wg1 persistent-keepalive | cut -f 2)"
expect "the daemon after the reload" "$daemon" "$(daemon_of wg1)"

say "the daemon dies: the service starts another"
kill -KILL "$daemon"
wait_for 30 "a working tunnel of another daemon" works_anew
expect "times that systemd started the service again" 0 "$(property linerate@wg1 NRestarts)"
ran "another daemon" ""

say "the supervisor dies: systemd ends the daemon, too, and starts the service again; the kill switch holds"
daemon=$(daemon_of wg1)
kill -KILL "$(pgrep -o -f 'up --supervise -- wg1')"
restarted() { [[ $(property linerate@wg1 ActiveState),$(property linerate@wg1 NRestarts) == active,1 ]]; }
wait_for 20 "systemd to start the service again" restarted
wait_for 30 "a working tunnel of another daemon" works_anew
ran "the service again" "kill switch up"

say "restart and stop: PreDown has a working tunnel, PostDown none; so does the other service, which takes its place"
service restart linerate@wg1
wait_for 20 "a working tunnel" works
ran restart "pre-down post-down up"
service start wg-quick@wg1
wait_for 20 "a working tunnel" works
ran "start of wg-quick@wg1" "pre-down post-down up"
expect "state of linerate@wg1" inactive "$(property linerate@wg1 ActiveState)"
stops wg-quick@wg1
service start linerate@wg1
ran "start of linerate@wg1" up
service start linerate@wg1
stops linerate@wg1

say "SaveConfig: what was set at run time is in the file when the service has stopped"
sed -i 's/^Address/SaveConfig = true\n&/' /etc/wireguard/wg1.conf
start_afresh
service start linerate@wg1
ran "start of linerate@wg1" up
on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 7
stops linerate@wg1
expect "the keepalive in the file" "PersistentKeepalive = 7" "$(grep PersistentKeepalive /etc/wireguard/wg1.conf)"
sed -i /^SaveConfig/d /etc/wireguard/wg1.conf

say "the wg-quick@ of wireguard-tools, with our drop-in"
install -m 644 "$REPO/packaging/systemd/wg-quick@.service.d/linerate.conf" "$units/wg-quick@.service.d/"
service daemon-reload
service start wg-quick@wg1
wait_for 20 "a working tunnel" works
ran start up
stops wg-quick@wg1

say "stop while PostUp is at work: that ends, and the tunnel is taken back"
tunnel_file wg1 10.9.0.2/32 "PostUp = echo up >>$WORK/runs; sleep 1000"
start_afresh
service start --no-block linerate@wg1
wait_for 20 "PostUp to run" test -s "$WORK/runs"
service stop linerate@wg1
ran "start and stop" up
expect "processes of PostUp" "" "$(pgrep -x sleep || true)"
is_gone wg1
as_before "stop while PostUp is at work"

say "a tunnel that cannot come up is tried five times, and then the service has failed"
tunnel_file wg1 10.9.0.2/32 "PostUp = echo up >>$WORK/runs; exit 3"
start_afresh
expect_failure "start" service start linerate@wg1
given_up() { [[ $(property linerate@wg1 ActiveState) == failed ]]; }
wait_for 50 "systemd to give up" given_up
ran "tries" "up up up up up"
is_gone wg1
as_before "a tunnel that cannot come up"
