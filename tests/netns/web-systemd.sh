#!/usr/bin/env bash
# timeout: 240
# The page, its helper and the metrics under a real systemd, confined as their units say: logging in, a client that is
# added once the helper may, a helper that ends when nobody asks, and nothing left when they are stopped.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need curl jq systemctl systemd-sysusers
source "$(dirname "$0")/systemd.bash"
[[ -x $LINERATE_WEB ]] || skip "there is no $LINERATE_WEB (cargo build -p linerate-web)"

host h1
key h1
(umask 077 && cat >/etc/wireguard/wg1.conf) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.71.8.1/24
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
CONF
systemd-sysusers "$REPO/packaging/sysusers/linerate-web.conf" || fail "no user"
mount -t tmpfs -o mode=0755 tmpfs /var/lib
mkdir -p /var/lib/prometheus/node-exporter
switch_on

PAGE=http://127.0.0.1:7789
state_of() { service show --property ActiveState --value "$1"; }
is() { [[ $(state_of "$1") == "$2" ]]; } # UNIT STATE
start() { service start "$1" || fail "$1: $(service status "$1" --no-pager; tail -n 20 "$SCENARIO_LOGS/systemd.log")"; }
told() { inside curl -s -o "$WORK/page" -w '%{http_code}' -b "$WORK/jar" -c "$WORK/jar" "$@"; }
touch "$WORK/jar"

start linerate@wg1
start linerate-web
listening() { [[ $(told "$PAGE/login") == [23]* ]]; }
wait_for 20 "the page" listening

say "what it is"
pid=$(property linerate-web MainPID)
status() { inside sed -n "s/^$1:\t//p" "/proc/$pid/status"; }
expect "its user" "$(id -u linerate-web)" "$(status Uid | cut -f 1)"
expect "its capabilities" "0000000000000000 0000000000000000" "$(status CapEff) $(status CapBnd)"
expect "no new privileges, and a filter" "1 2" "$(status NoNewPrivs) $(status Seccomp)"
expect_failure "writing to the machine" inside nsenter --target "$pid" --mount touch /usr/bin/x
expect_failure "root's files" inside nsenter --target "$pid" --mount setpriv --reuid=linerate-web --clear-groups \
  ls /etc/wireguard

say "logging in"
inside linerate-web token >"$WORK/token" 2>/dev/null || fail "no token"
expect "logging in" 303 "$(told -d "token=$(<"$WORK/token")" "$PAGE/login")"
expect "the tunnels" 200 "$(told "$PAGE/")"
grep -q 'href="/tunnels/wg1"' "$WORK/page" || fail "wg1 is not on the page"
expect "the helper" active "$(state_of linerate-web-helper)"
form=$(grep -oP 'name="form" value="\K[0-9a-f]+' "$WORK/page" | head -n 1)
expect "what the doctor finds" 200 "$(told "$PAGE/findings")"

say "changes"
add() { told -d "form=$form" --data-urlencode "name=$1" -d keep=on "$PAGE/tunnels/wg1/add"; }
before=$(sha256sum </etc/wireguard/wg1.conf)
add phone >/dev/null
grep -q 'not started with --write' "$WORK/page" || fail "a client is added without --write"
expect "the file" "$before" "$(sha256sum </etc/wireguard/wg1.conf)"
# As docs/web.md says.
install -D -m 644 /dev/stdin /etc/systemd/system/linerate-web-helper.service.d/override.conf <<UNIT
$(sed -n '/systemctl edit linerate-web-helper$/,/^```/s/^    //p' "$REPO/docs/web.md")
UNIT
grep -q -- --write /etc/systemd/system/linerate-web-helper.service.d/override.conf || fail "docs/web.md has no drop-in"
service daemon-reload
service restart linerate-web-helper
expect "adding a client" 200 "$(add phone)"
sed 's,<[^>]*>,,g' "$WORK/page" | grep 'phone was added' >/dev/null || fail "it was not added: $(cat "$WORK/page")"
grep -q '^# Name = phone$' /etc/wireguard/wg1.conf || fail "it is not in the file"
expect "peers that run" 1 "$(inside linerate show wg1 peers | wc -l)"
service restart linerate-web
wait_for 20 "the page" listening
expect "the session, after a restart" 200 "$(told "$PAGE/")"
recorded() { [[ -s /var/lib/linerate-web/history/wg1.ring ]]; }
wait_for 30 "a history" recorded
expect "who owns it" "linerate-web 700" "$(stat -c '%U %a' /var/lib/linerate-web)"

say "metrics"
start linerate-metrics
has_metrics() { inside curl -s http://127.0.0.1:9586/metrics | grep -q '^linerate_tunnel_up{interface="wg1"} 1$'; }
wait_for 20 "metrics" has_metrics
grep -q 'friendly_name="phone"' <<<"$(inside curl -s http://127.0.0.1:9586/metrics)" || fail "no names in the metrics"
service stop linerate-metrics
start linerate-metrics-file.timer
file=/var/lib/prometheus/node-exporter/linerate.prom
written() { grep -qs '^linerate_tunnel_up{interface="wg1"} 1$' $file; }
wait_for 40 "metrics in a file" written
service stop linerate-metrics-file.timer
service stop linerate-metrics-file.service

say "nobody looks"
wait_for 100 "the helper to end" is linerate-web-helper inactive
expect "the page" active "$(state_of linerate-web)"
expect "somebody looks again" 200 "$(told "$PAGE/")"

say "stopped"
service stop linerate-web linerate-web-helper.socket linerate-web-helper.service
expect "units that failed" "" "$(service list-units --state=failed --no-legend --plain)"
expect "processes" "" "$(pgrep -fa 'linerate-web|web-helper|linerate metrics' | grep -v scenario)"
expect "files in /run" "" "$(find /run -path "$WORK" -prune -o -name 'linerate-web*' -print)"
expect_failure "the port" inside curl -s "$PAGE/login"
expect "the tunnel" active "$(state_of linerate@wg1)"
service stop linerate@wg1
