#!/usr/bin/env bash
# timeout: 120
# A new server becomes a service where there is a service manager: the calls to systemctl and to OpenRC's programs, what
# happens when they fail, and that removal takes the service away. (server-systemd.sh is under systemd itself.)
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
need jq

internet
mkdir -p "$WORK/programs" /run/systemd/system
PATH=$WORK/programs:$PATH
calls=$WORK/calls
: >"$calls"
program() { # NAME <TEXT
  { echo "#!/bin/bash" && echo "echo \"${1##*/} \$*\" >>$calls" && cat; } >"$WORK/programs/$1"
  chmod +x "$WORK/programs/$1"
}
called() { # WHAT CALLS
  expect "$1" "$2" "$(paste -sd ';' "$calls")"
  : >"$calls"
}
unit=linerate@wg0.service
# It runs the unit's command, and stops it as the unit does: by SIGTERM to the supervisor.
program systemctl <<SYSTEMCTL
case \$1 in
  cat) exit \$(<$WORK/unknown) ;;
  enable)
    [[ ! -e $WORK/fails ]] || { echo "Job for $unit failed." >&2; exit 1; }
    touch $WORK/enabled
    setsid $LINERATE up --supervise wg0 >>$SCENARIO_LOGS/service.log 2>&1 </dev/null &
    echo \$! >$WORK/supervisor
    until [[ -S /run/wireguard/wg0.sock ]]; do sleep 0.05; done
    until grep -q '"complete": true' /run/linerate/wg0.json; do sleep 0.05; done ;;
  disable)
    if [[ -e $WORK/waits ]] && mkdir $WORK/undoing 2>/dev/null; then until [[ -e $WORK/goes-on ]]; do sleep 0.05; done; fi
    rm -f $WORK/enabled
    if [[ -e $WORK/supervisor ]]; then
      kill \$(<$WORK/supervisor); tail --pid=\$(<$WORK/supervisor) -f /dev/null; rm $WORK/supervisor
    fi ;;
  is-active) if [[ -e $WORK/supervisor ]]; then echo active; else echo inactive; exit 3; fi ;;
  is-enabled) if [[ -e $WORK/enabled ]]; then echo enabled; else echo disabled; exit 1; fi ;;
esac
SYSTEMCTL
echo 0 >"$WORK/unknown"
remember_all

say "systemd"
server init
said "the service" "systemd service linerate@wg0"
called "calls of init" "systemctl cat $unit;systemctl enable --now $unit"
expect "port" 51820 "$(is_up)"
expect "what runs it" "systemd service linerate@wg0 active enabled" "$(shown '.service|[.name, .active, .enabled]|join(" ")' | tr -d '"')"
: >"$calls"
server remove
called "calls of remove" "systemctl disable --now $unit;systemctl reset-failed $unit"
is_gone wg0
all_as_before "a service, and its removal"

say "the service does not start: nothing is left"
touch "$WORK/fails"
no_server init
said "why" "Job for $unit failed.*journalctl -u $unit"
called "calls" "systemctl cat $unit;systemctl enable --now $unit;systemctl disable --now $unit;systemctl reset-failed $unit"
all_as_before "a service that fails"
rm "$WORK/fails"

say "another init waits until a failed one is undone"
touch "$WORK/fails" "$WORK/waits"
at h1 "$LINERATE" server init >"$SCENARIO_LOGS/first.log" 2>&1 &
first=$!
wait_for 30 "the first to be undone" test -d "$WORK/undoing"
rm "$WORK/fails"
at h1 "$LINERATE" server init >"$SCENARIO_LOGS/second.log" 2>&1 &
second=$!
# Without the lock it is done in a moment, and what the first one undoes is the second one's.
for ((n = 0; n < 40; n++)); do [[ -d /proc/$second ]] && sleep 0.05; done
touch "$WORK/goes-on"
! wait "$first" || fail "the first init did not fail"
wait "$second" || fail "the second init: $(cat "$SCENARIO_LOGS/second.log")"
expect "port" 51820 "$(is_up)"
expect "the record" made "$(jq -r .state /var/lib/linerate/wg0.server.json)"
server remove
is_gone wg0
: >"$calls"
all_as_before "a failed init, and another"

say "a signal while it starts: nothing is left"
sed -i 's/^  enable)/&\n    sleep 0.2; kill $PPID; sleep 1/' "$WORK/programs/systemctl"
no_server init
said "why" "interrupted"
: >"$calls"
all_as_before "a signal"

say "systemd without our unit: a daemon, and what is missing"
echo 1 >"$WORK/unknown"
server init
said "what is missing" "no unit linerate@.service"
expect "port" 51820 "$(is_up)"
called "calls" "systemctl cat $unit"
server remove
is_gone wg0
called "calls of remove" ""
all_as_before "without a unit"

say "OpenRC"
rmdir /run/systemd/system /run/systemd
mkdir -p /run/openrc "$WORK/init.d"
[[ -d /etc/init.d ]] || mkdir /etc/init.d
mount --bind "$WORK/init.d" /etc/init.d
install "$REPO/packaging/openrc/linerate" /etc/init.d/linerate
program rc-update </dev/null
program rc-service <<RC
[[ \$1 != --ifstarted ]] || shift
case \$2 in
  start) $LINERATE up wg0 ;;
  stop) $LINERATE down wg0 ;;
esac
RC
remember_all
server init
said "the service" "OpenRC service linerate.wg0"
expect "the link" linerate "$(readlink /etc/init.d/linerate.wg0)"
called "calls of init" "rc-update add linerate.wg0 default;rc-service linerate.wg0 start"
expect "port" 51820 "$(is_up)"
server remove
called "calls of remove" "rc-service --ifstarted linerate.wg0 stop;rc-update delete linerate.wg0"
is_gone wg0
all_as_before "OpenRC"
