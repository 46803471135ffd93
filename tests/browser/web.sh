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
source "$(dirname "$0")/../netns/web.bash"
need iperf3 zbarimg
has_browser

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
[Peer]
# Name = guest
#! Created = 2026-01-01T00:00:00Z
#! Expires = 2026-02-01T00:00:00Z
PublicKey = $(wg genkey | wg pubkey)
AllowedIPs = 10.71.8.201/32
CONF
(umask 077 && cat >/etc/wireguard/wg5.conf) <<CONF
[Interface]
PrivateKey = $(wg genkey)
Address = 10.71.9.1/24
ListenPort = 50005
#! PublicEndpoint = 192.0.2.1
CONF
good linerate up wg1
good linerate up wg5
at h1 "$LINERATE" client add laptop --server wg1 --pubkey "$(public h2)" --note '"><script>alert(2)</script>' \
  --json >/dev/null
sed -n 's/^PresharedKey = //p' /etc/wireguard/wg1.conf | tail -n 1 >"$WORK/h2.psk"
daemon h2 wg2
on h2 wg set wg2 private-key "$WORK/h2.key" peer "$(public h1)" preshared-key "$WORK/h2.psk" endpoint 192.0.2.1:50001 \
  allowed-ips 10.71.8.0/24 persistent-keepalive 25
wg_address h2 wg2 10.71.8.2/24
wait_for 10 "traffic" on h2 ping -n -q -c 1 -W 1 10.71.8.1
page --write

on h2 iperf3 -s -D -B 10.71.8.2 --pidfile "$WORK/iperf3.pid" >/dev/null
token --read-only >"$WORK/reader"
token >"$WORK/writer"
export FOLDER=$WORK HELPER_PID=${PID[helper]} SHOTS=${SHOTS:-$SCENARIO_LOGS}
on h1 python3 "$REPO/tests/browser/web.py" "$PAGE" ||
  fail "the browser saw what it should not"

say "what was left"
grep -q '^audit: .*: added phone to wg1$' "$SCENARIO_LOGS/web.log" || fail "no audit line about the new client"
grep -q '^# Name = phone$' /etc/wireguard/wg1.conf || fail "the client is not in the file"
! grep -qF "$(cat "$WORK/writer")" -r "$SCENARIO_LOGS" "$WORK/state" || fail "a token was written down"
expect_at_most "kilobytes of RSS" 40000 "$(rss_kb "${PID[web]}")"
note "RSS $(rss_kb "${PID[web]}") kB"
