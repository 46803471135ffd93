# Words for scenarios about firewalld on h1, sourced after gateway.bash and firewalls.bash. Each firewall-cmd takes up to a
# second of a processor, so these scenarios are several that run side by side.

# `up` starts firewall-cmd 26 times.
TURN_LIMIT=600

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
extra_firewalls() { (cd /etc/firewalld && find . -name '*.xml' -exec tail -n +1 {} +); }
loaded() { on h1 firewall-cmd --list-all-zones && on h1 firewall-cmd --list-all-policies; }

# A gateway with firewalld, which has its settings in memory and the uplink in the zone `public`.
firewalld_gateway() {
  need nft firewalld firewall-cmd dbus-daemon
  cp -a /etc/firewalld "$WORK/firewalld"
  mount --bind "$WORK/firewalld" /etc/firewalld
  gateway_hosts
  mkdir -p /run/dbus
  dbus-daemon --system --nofork --nopidfile >"$SCENARIO_LOGS/dbus.log" 2>&1 &
  wait_for 10 "the bus" test -S /run/dbus/system_bus_socket
  start_firewalld
  runs >/dev/null 2>&1 || skip "firewalld does not run here: $(tail -n 1 "$SCENARIO_LOGS/firewalld.log")"
  on h1 firewall-cmd --permanent --zone=public --add-interface=up0
  on h1 firewall-cmd --reload
  gateway_file "#! Gateway = up0" "#! Masquerade = both"
  remember_all
  firewalls >"$WORK/firewalls"
  loaded >"$WORK/loaded"
}
loaded_as_before() {
  loaded >"$WORK/loaded-after"
  diff "$WORK/loaded" "$WORK/loaded-after" || fail "firewalld has loaded something else"
}
