#!/usr/bin/env bash
# Names and values that look like options: no program that is started takes them for one.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
printf '%s\n' "127.0.0.1 localhost" "192.0.2.2 h2.example.com" >"$WORK/etc/hosts"
# Logs the arguments of these programs. Like systemd's resolvectl, this one fails at an unknown option.
for program in resolvectl resolvconf; do
  cat >"$WORK/bin/$program" <<'PROGRAM'
#!/bin/bash
[[ $0 != *resolvectl ]] || getopt -o h46i:t:c:p: -- "$@" >/dev/null || exit 1
echo "${0##*/} $*" >>/run/scenario/asked
PROGRAM
  chmod +x "$WORK/bin/$program"
done
mkdir -p /run/systemd/resolve
echo "nameserver 127.0.0.53" >"$WORK/etc/resolv.conf"
PATH=$WORK/bin:$PATH
links() { ip -n h1 -o link | awk -F': ' '{ print $2 }'; }
there() { links | grep -qxF -e "$1"; }
not_there() { ! there "$1"; }

for name in -f --help --user=nobody -; do
  say "an interface with the name $name"
  ENDPOINT=h2.example.com:50002 tunnel_file "$name" 10.9.0.2/32 "DNS = 10.9.0.2, -x.example.com" "PostUp = -c true || touch $WORK/hook"
  rm -f "$WORK/hook" "$WORK/asked"
  at h1 timeout 60 "$LINERATE" up -- "$name" >"$WORK/said" 2>&1 || fail "up: $(cat "$WORK/said")"
  there "$name" || fail "there is no interface $name: $(links | xargs)"
  [[ -e $WORK/hook ]] || fail "the hook was not run as it is"
  pings h1 10.9.0.2
  wait_for 5 "its supervisor" pgrep -f "^linerate supervise -- $name\$"
  expect "what resolvectl is asked for" 3 "$(grep -cE "^resolvectl .*$name" "$WORK/asked")"
  at h1 timeout 60 "$LINERATE" status -- "$name" >"$WORK/said" 2>&1 || fail "status: $(cat "$WORK/said")"
  at h1 timeout 60 "$LINERATE" save -- "$name" >"$WORK/said" 2>&1 || fail "save: $(cat "$WORK/said")"
  at h1 timeout 60 "$LINERATE" reload -- "$name" >"$WORK/said" 2>&1 || fail "reload: $(cat "$WORK/said")"
  at h1 timeout 60 "$LINERATE" down -- "$name" >"$WORK/said" 2>&1 || fail "down: $(cat "$WORK/said")"
  wait_for 5 "$name to go" not_there "$name"
  at h1 timeout 60 "$LINERATE" wg-quick up "$name" >"$WORK/said" 2>&1 || fail "wg-quick up: $(cat "$WORK/said")"
  there "$name" || fail "there is no interface $name: $(links | xargs)"
  at h1 timeout 60 "$LINERATE" wg-quick down "$name" >"$WORK/said" 2>&1 || fail "wg-quick down: $(cat "$WORK/said")"
  wait_for 5 "$name to go" not_there "$name"
done
