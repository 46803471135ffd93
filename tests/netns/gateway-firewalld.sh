#!/usr/bin/env bash
# timeout: 700
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
ip netns exec h1 firewalld --nofork --nopid --log-target=console >"$SCENARIO_LOGS/firewalld.log" 2>&1 &
firewalld=$!
runs() { on h1 firewall-cmd --state; }
runs_or_ended() { runs || [[ ! -d /proc/$firewalld ]]; }
wait_for 30 "firewalld" runs_or_ended
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
kill $firewalld
wait_for 20 "firewalld to end" eval '[[ ! -d /proc/$firewalld ]]'
good linerate down wg1
is_gone wg1
[[ -z $(find /etc/firewalld -name 'lr-*.xml') ]] || fail "something of ours is left: $(find /etc/firewalld -name 'lr-*')"
