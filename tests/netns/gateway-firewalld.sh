#!/usr/bin/env bash
# timeout: 900
# firewalld on a gateway: the commands that `up` names make way, and so does --fix-firewall; `down` leaves firewalld as it was, also after kills.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"
source "$(dirname "$0")/firewalls.bash"

need nft firewalld firewall-cmd dbus-daemon
# Its settings in memory.
cp -a /etc/firewalld "$WORK/firewalld"
mount --bind "$WORK/firewalld" /etc/firewalld
gateway_hosts
mkdir -p /run/dbus
dbus-daemon --system --nofork --nopidfile >"$SCENARIO_LOGS/dbus.log" 2>&1 &
wait_for 10 "the bus" test -S /run/dbus/system_bus_socket
runs() { on h1 firewall-cmd --state; }
runs_or_ended() { runs || [[ ! -d /proc/$firewalld ]]; }
start_firewalld() {
  ip netns exec h1 firewalld --nofork --nopid --log-target=console >>"$SCENARIO_LOGS/firewalld.log" 2>&1 &
  firewalld=$!
  wait_for 30 "firewalld" runs_or_ended
}
stop_firewalld() {
  kill $firewalld
  wait_for 20 "firewalld to end" eval '[[ ! -d /proc/$firewalld ]]'
}
start_firewalld
runs >/dev/null 2>&1 || skip "firewalld does not run here: $(tail -n 1 "$SCENARIO_LOGS/firewalld.log")"
on h1 firewall-cmd --permanent --zone=public --add-interface=up0
on h1 firewall-cmd --reload
gateway_file "#! Gateway = up0" "#! Masquerade = both"

extra_firewalls() { (cd /etc/firewalld && find . -name '*.xml' -exec tail -n +1 {} +); }
loaded() { on h1 firewall-cmd --list-all-zones && on h1 firewall-cmd --list-all-policies; }
remember_all
firewalls >"$WORK/firewalls"
loaded >"$WORK/loaded"
stopped_then_mended firewalld
on h1 bash -c 'firewall-cmd --permanent --delete-policy=wg1-out; firewall-cmd --permanent --delete-policy=wg1-udp; firewall-cmd --permanent --delete-zone=wg1; firewall-cmd --reload'
firewalls_as_before "the commands taken back"
# Each takes seconds.
PARTS="3 7" RELOADS="5" fixed firewalld
loaded >"$WORK/loaded-after"
diff "$WORK/loaded" "$WORK/loaded-after" || fail "firewalld has loaded something else"

say "what the tunnel could reach on the host it still can"
good linerate up --fix-firewall wg1
expect "services of the tunnel's zone" "$(on h1 firewall-cmd --zone=public --list-services)" "$(on h1 firewall-cmd --zone=lr-wg1 --list-services)"
gateway_file "#! Gateway = up0" "#! Masquerade = both" "#! Inbound = all"
good linerate reload wg1
new_sessions
reaches c1 198.18.0.1
routes_back
pings inet 10.9.0.2
good linerate down wg1
is_gone wg1
firewalls_as_before "new connections into the tunnel"

say "down is killed, and run again"
length=0
for part in whole 3 7; do
  good linerate up --fix-firewall wg1
  begun=${EPOCHREALTIME/./}
  if [[ $part == whole ]]; then
    good linerate down wg1
    length=$((${EPOCHREALTIME/./} - begun))
  else
    at h1 timeout -s KILL "$(awk "BEGIN { printf \"%.4f\", $length * $part / 10 / 1000000 }")" "$LINERATE" down wg1 >"$WORK/said" 2>&1 || true
    turn linerate down wg1
  fi
  is_gone wg1
  firewalls_as_before "down killed after $part of 10 parts, then down"
done

say "after a power cut firewalld has what was opened, and nobody else knows of it"
for verb in "down" "up --fix-firewall"; do
  good linerate up --fix-firewall wg1
  stop_firewalld
  kill_daemon
  rm -rf /run/linerate
  on h1 nft flush ruleset
  start_firewalld
  # shellcheck disable=SC2086 # words
  [[ $verb == down ]] || { good linerate $verb wg1 && new_sessions && reaches c1 198.18.0.1; }
  good linerate down wg1
  is_gone wg1
  firewalls_as_before "a power cut, then $verb"
done

say "a name that is too long for firewalld"
name=wg-fifteen-long
sed '/^\[Peer\]/,$d' /etc/wireguard/wg1.conf >"/etc/wireguard/$name.conf"
good linerate up --fix-firewall "$name"
[[ $(cat "$WORK/said") != *"is not opened"* ]] || fail "a long name: $(cat "$WORK/said")"
grep -qE 'lr-wg-fi[0-9a-f]{6}-out' <<<"$(on h1 firewall-cmd --get-policies)" || fail "a long name: no policy among $(on h1 firewall-cmd --get-policies)"
good linerate down "$name"
is_gone "$name"
firewalls_as_before "a long name"

say "what is not permanent is not lost"
gateway_file "#! Gateway = up0" "#! Masquerade = both"
on h1 firewall-cmd --zone=public --add-port=8080/tcp
firewalls >"$WORK/firewalls"
good linerate up --fix-firewall wg1
said "why it is not opened" "firewall-cmd --runtime-to-permanent"
good linerate down wg1
is_gone wg1
firewalls_as_before "settings that are not permanent"

say "firewalld that does not run"
on h1 firewall-cmd --zone=public --remove-port=8080/tcp
firewalls >"$WORK/firewalls"
good linerate up --fix-firewall wg1
stop_firewalld
good linerate down wg1
is_gone wg1
[[ -z $(find /etc/firewalld -name 'lr-*.xml') ]] || fail "something of ours is left: $(find /etc/firewalld -name 'lr-*')"
