#!/usr/bin/env bash
# heavy: a browser
# timeout: 120
# The page in a browser: nobody gets in without a token, a live plot moves while a tunnel carries traffic, a client is
# added and its QR code reads as its file, hostile names are texts, and every page is readable at three widths and in
# both themes.
#
# Environment:
#   SHOTS   a folder for screenshots ($SCENARIO_LOGS)
source "$(dirname "$0")/../netns/lib.sh"
source "$(dirname "$0")/../netns/tunnel-files.bash"
source "$(dirname "$0")/web.bash"
need iperf3 zbarimg python3 curl

two_hosts
key h1 h2
(umask 077 && cat >/etc/wireguard/wg1.conf) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.71.8.1/24
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
[Peer]
# Name = <script>document.title='owned'</script><img src=x onerror=alert(1)>
PublicKey = $(wg genkey | wg pubkey)
AllowedIPs = 10.71.8.200/32
CONF
good linerate up wg1
at h1 "$LINERATE" client add laptop --pubkey "$(public h2)" --note '"><script>alert(2)</script>' --json >"$WORK/laptop.json"
sed -n 's/^PresharedKey = //p' /etc/wireguard/wg1.conf | tail -n 1 >"$WORK/h2.psk"
daemon h2 wg2
on h2 wg set wg2 private-key "$WORK/h2.key" peer "$(public h1)" preshared-key "$WORK/h2.psk" endpoint 192.0.2.1:50001 \
  allowed-ips 10.71.8.0/24 persistent-keepalive 25
wg_address h2 wg2 10.71.8.2/24
wait_for 10 "traffic" on h2 ping -n -q -c 1 -W 1 10.71.8.1
page --write

say "what curl is told"
told() { on h1 curl -s -o /dev/null -w '%{http_code}' "$@"; }
expect "without a session" 303 "$(told "$PAGE/")"
expect "a peer without a session" 303 "$(told "$PAGE/tunnels/wg1")"
expect "a change without a session" 403 "$(told -d name=x "$PAGE/tunnels/wg1/add")"
expect "another host" 421 "$(told -H 'Host: evil.example' "$PAGE/login")"
expect "another page's form" 403 "$(told -H 'Origin: http://evil.example' -d token=x "$PAGE/login")"
expect "a guess" 403 "$(told -d token=guess "$PAGE/login")"
expect "the next guess" 429 "$(told -d token=guess "$PAGE/login")"
expect_failure "a user who is not the page's asks the helper" setpriv --reuid=12345 --regid=12345 --clear-groups \
  python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('$HELPER')"

sleep 1.1 # the source's wait after its guess
on h2 iperf3 -s -D -B 10.71.8.2 --pidfile "$WORK/iperf3.pid" >/dev/null
token --read-only >"$WORK/reader"
token >"$WORK/writer"
FOLDER=$WORK SHOTS=${SHOTS:-$SCENARIO_LOGS} on h1 python3 "$REPO/tests/browser/web.py" "$PAGE" || fail "the browser saw what it should not"

say "what was left"
grep -q '^audit: .*: added phone to wg1$' "$SCENARIO_LOGS/web.log" || fail "no audit line about the new client"
grep -q '^# Name = phone$' /etc/wireguard/wg1.conf || fail "the client is not in the file"
! grep -qF "$(cat "$WORK/writer")" -r "$SCENARIO_LOGS" "$WORK/state" || fail "a token was written down"
expect_at_most "kilobytes of RSS" 40000 "$(rss_kb "${PID[web]}")"
note "RSS $(rss_kb "${PID[web]}") kB"
