#!/usr/bin/env bash
# timeout: 180
# A server under a real systemd: `server init` makes a service that survives restarts, a reboot and a power cut, its journal tells what happened, `server remove` takes it away; no unit fails.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
need jq systemctl journalctl
source "$(dirname "$0")/systemd.bash"
journald=${systemd%/systemd}/systemd-journald
[[ -x $journald ]] || skip "there is no journald"

# --- the machine: what starts at boot ------------------------------------------------------------------------------

cat >"$units/systemd-journald.socket" <<'UNIT'
[Unit]
DefaultDependencies=no
[Socket]
ListenStream=/run/systemd/journal/stdout
ListenDatagram=/run/systemd/journal/socket
PassCredentials=yes
PassSecurity=yes
UNIT
cat >"$units/systemd-journald.service" <<UNIT
[Unit]
DefaultDependencies=no
Requires=systemd-journald.socket
After=systemd-journald.socket
[Service]
Type=notify
ExecStart=$journald
UNIT
printf '[Unit]\nRequires=systemd-journald.service\nAfter=systemd-journald.service\n' >"$units/sysinit.target"
mkdir -p /etc/systemd/journald.conf.d
printf '[Journal]\nStorage=persistent\nReadKMsg=no\nAudit=no\n' >/etc/systemd/journald.conf.d/scenario.conf
mount -t tmpfs -o mode=0755 tmpfs /var/log
mkdir /var/log/journal
own_file /etc/machine-id <<<"0123456789abcdef0123456789abcdef"

unit=linerate@wg0.service
machine_state() { service is-system-running 2>&1; service list-units --state=failed --no-legend --plain; service list-jobs; }
running() { [[ $(service is-system-running 2>/dev/null) == running ]]; }
on_host() { # WHAT COMMAND... : on h1, with its words in $WORK/said
  STATUS=0
  inside "${@:2}" >"$WORK/said" 2>&1 || STATUS=$?
  { echo "--- ${*:2}: $STATUS" && cat "$WORK/said"; } >>"$SCENARIO_LOGS/said.log"
  ((STATUS == 0)) || fail "$1: ${*:2}: ended with $STATUS: $(tail -n 5 "$WORK/said" | tr '\n' ' ')"
  say "$1: ok"
}
healthy() { # WHEN
  wait_for 10 "the machine to run: $(machine_state; tail -n 30 "$SCENARIO_LOGS/systemd.log")" running
  expect "$1: units that failed" "" "$(service list-units --state=failed --no-legend --plain)"
}
journal() { inside journalctl --quiet --output=cat --boot --unit="$unit"; }
journal_has() { # WHAT PATTERN
  told() { journal | grep -qE -- "$1"; }
  wait_for 10 "$1 in the journal: $(journal | tail -n 5 | tr '\n' ' ')" told "$2"
  say "$1: $(journal | grep -E -- "$2" | tail -n 1)"
}
laptop_works() { on laptop ping -n -q -c 1 -w 1 "$server_address"; }
works() { # WHEN [same] : with a new session, since it takes the laptop a quarter of a minute to miss the old one
  [[ ${2:-} == same ]] || forget laptop wg9
  wait_for 30 "$1: the laptop's tunnel" laptop_works
  expect "$1: the service" "active enabled" "$(service is-active $unit) $(service is-enabled $unit)"
}

internet
switch_on
healthy "first boot"
find /etc/systemd /etc/wireguard /var/lib -printf '%p %m %y %l\n' | sort >"$WORK/before-files"

say "init, and a client"
on_host "init" linerate server init
said "the service" "systemd service linerate@wg0"
on_host "client add" linerate client add laptop
grep -v '^DNS' "$WORK/said" | sed -n '/^\[Interface\]/,$p' | sed '/^[^[#A-Z]/d; s/^\[Interface\]/&\nTable = off/' >"$WORK/wg9.conf"
server_address=$(sed -n 's/^Address = \([0-9.]*\)\/.*/\1/p' /etc/wireguard/wg0.conf)
at laptop "$LINERATE" up "$WORK/wg9.conf" 2>>"$SCENARIO_LOGS/said.log"
ip -n laptop route add "${server_address%.*}.0/24" dev wg9
at laptop wg set wg9 peer "$(at laptop wg show wg9 peers)" persistent-keepalive 1
works init
healthy init
on_host "show" linerate server show
said "what runs it" "systemd service linerate@wg0: active, enabled"
journal_has "the journal" "wg0 is ready"

say "the service's own verbs"
for verb in daemon-reload "reload $unit"; do
  # shellcheck disable=SC2086 # two words
  on_host "$verb" systemctl $verb
  works "$verb" same
done
for verb in "restart $unit" "restart linerate.target"; do
  # shellcheck disable=SC2086 # two words
  on_host "$verb" systemctl $verb
  works "$verb"
done
healthy "restart"
on_host "a port" linerate server set --port 4433
said "the port" "the running tunnel follows it"
on_host "the old one" linerate server set --port 51820
kill -KILL "$(daemon_of wg0)"
journal_has "a daemon that dies, in the journal" "started|starting|again"
works "another daemon"
journal >"$SCENARIO_LOGS/journal.log"
on_host "disable a client" linerate client disable laptop
on_host "enable it" linerate client enable laptop
works "changes"

# --- the machine goes, and comes again --------------------------------------------------------------------------

comes_again() { # a new h1 with the old files
  wait_for 30 "h1 to be off" eval "! pgrep -x systemd"
  ip -n h1 link delete e1
  ip netns delete h1
  # /run is new on a machine that boots, but for what is the laptop's.
  rm -rf /run/{systemd,log}
  find /run/linerate /run/wireguard -name 'wg0*' -delete
  host h1
  cable h1 e1 inet i1
  address inet i1 203.0.113.1/24 2001:db8:1::1/64
  address h1 e1 203.0.113.5/24 2001:db8:1::5/64
  ip -n h1 route add default via 203.0.113.1
  ip -n h1 -6 route add default via 2001:db8:1::1
  switch_on
}
say "a reboot"
service start shutdown.target || true
expect "the service while the machine goes down" "inactive" "$(service is-active $unit || true)"
kill -KILL "$init"
comes_again
works "after a reboot"
healthy "after a reboot"

say "a power cut"
kill -KILL "$init"
comes_again
works "after a power cut"
healthy "after a power cut"
on_host "show" linerate server show
said "the client" "1 enabled"

say "remove"
journal >"$SCENARIO_LOGS/journal.log"
on_host "remove" linerate server remove --yes
expect "the service" "inactive disabled" "$(service is-active $unit || true) $(service is-enabled $unit || true)"
is_gone wg0
healthy "remove"
diff "$WORK/before-files" <(find /etc/systemd /etc/wireguard /var/lib -printf '%p %m %y %l\n' | sort) >"$WORK/diff" ||
  fail "remove has left something: $(tr '\n' ' ' <"$WORK/diff")"
expect "tables" "" "$(on h1 nft list tables)"
