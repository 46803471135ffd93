#!/usr/bin/env bash
# The page says of a new client what `linerate client add` says: IPv6 that goes past the tunnel, no name server, the end, and a
# tunnel that does not follow. Its file is shown all the same.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/web.bash"

host h1
(umask 077 && cat >/etc/wireguard/wg1.conf) <<CONF
[Interface]
PrivateKey = $(wg genkey)
Address = 10.71.8.1/24
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
CONF
good linerate up wg1
page --write
log_in
shown() { grep -qE -- "$2" "$WORK/shown.html" || fail "$1: expected words like '$2' on the page, saw: $(sed 's/<[^>]*>/ /g' "$WORK/shown.html" | tr -s ' \n' ' ')"; } # WHAT PATTERN
hidden() { if grep -qE -- "$2" "$WORK/shown.html"; then fail "$1: the page says '$2'"; fi; } # WHAT PATTERN
add() { # NAME [FIELD=VALUE]...
  local fields=(-d "form=$form" -d "name=$1") field
  for field in "${@:2}"; do fields+=(-d "$field"); done
  expect "adding $1" 200 "$(on h1 curl -s -o "$WORK/shown.html" -w '%{http_code}' -b "$WORK/jar" "${fields[@]}" "$PAGE/tunnels/wg1/add")"
  shown "the file of $1" "PrivateKey = "
  grep -qx "# Name = $1" /etc/wireguard/wg1.conf || fail "$1 is not in the file"
}

say "what a client loses"
add phone expires=30d
shown "IPv6" "IPv6 traffic of clients goes past the tunnel"
shown "name servers" "no name server is named"
shown "its end" "expires on"

say "nothing to say"
add router split=on
hidden "a client that sends only what is for the server's networks" "past the tunnel|name server|Warning"

say "a tunnel of wireguard-go, which keeps no end of clients"
if ! has_original; then say "skipped: wg-quick or $ENGINE is not installed" && exit; fi
good linerate down wg1
is_gone wg1
good original up wg1
add tablet expires=30d
shown "what is not kept" "only linerated keeps Expires"
grep -q '^audit: .*: added tablet to wg1$' "$SCENARIO_LOGS/web.log" || fail "no audit line about tablet"
good original down wg1
