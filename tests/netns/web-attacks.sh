#!/usr/bin/env bash
# timeout: 120
# Attacks on the page and on its helper, without a browser: paths, names, heads without an end, forms of elsewhere,
# changes whose answer nobody waits for, and traps that the page's user lays in its folder for root.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/web.bash"
need jq flock

host h1
key h1
(umask 077 && cat >/etc/wireguard/wg1.conf) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.71.8.1/24
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
CONF
good linerate up wg1
at h1 "$LINERATE" client add phone --keep-key --json >"$WORK/phone.json"
page --write
log_in
cookie() { awk '/linerate-session/ { print $6 "=" $7 }' "$WORK/jar"; }
phone=$(jq -r '.[0].publicKey' "$WORK/phone.json" | tr '+/' '-_' | tr -d '=')
peer=$PAGE/tunnels/wg1/peers/$phone
see() { told -b "$WORK/jar" "$@"; }
expect "the client's page" 200 "$(see "$peer")"

say "paths"
for path in /tunnels/../login /../../etc/passwd /%2e%2e/%2e%2e/etc/passwd /tunnels/%2Fetc%2Fwireguard%2Fwg1.conf \
  /tunnels/..%2fwg1 "/tunnels/wg1/peers/$phone/../../../login" //login /login/ /LOGIN /tunnels/wg1.conf \
  /history/wg1.ring /style.css/../login /tunnels/wg1%00; do
  expect "$path" 404 "$(see --path-as-is "$PAGE$path")"
done
expect "a name that no interface has" 409 "$(see "$PAGE/tunnels/wg1;x")"
expect "a whole address for a path" 421 "$(see --request-target http://evil.example/ -H 'Host: evil.example' "$PAGE/")"
for method in PUT DELETE OPTIONS TRACE PATCH; do expect "$method" 404 "$(see -X $method "$PAGE/")"; done

say "names that others point here"
for host in evil.example 127.0.0.1.evil.example:7789 localhost:80 '' 'localhost:7789, evil' 0.0.0.0:7789 '[::]:7789'; do
  expect "Host: $host" 421 "$(see -H "Host: $host" "$PAGE/")"
done
expect "no host" 421 "$(see --http1.0 -H 'Host:' "$PAGE/")"

say "heads and bodies"
printf 'x%d: y\n' {1..1000} >"$WORK/many"
expect "a thousand headers" 431 "$(see -H @"$WORK/many" "$PAGE/")"
expect "a long one" 431 "$(see -H "x: $(head -c 20000 /dev/zero | tr '\0' x)" "$PAGE/")"
expect "a long form" 413 "$(head -c 20000 /dev/zero | tr '\0' x | see --data-binary @- "$PAGE/tunnels/wg1/add")"
expect "two cookies" 303 "$(told -H "Cookie: $(cookie); linerate-session=x" "$PAGE/")"

say "forms"
before=$(sha256sum </etc/wireguard/wg1.conf)
for option in "Origin: http://evil.example" "Sec-Fetch-Site: cross-site" "Sec-Fetch-Site: same-site"; do
  expect "$option" 403 "$(see -H "$option" -d "form=$form" "$peer/disable")"
done
expect "no secret" 403 "$(see -d x=y "$peer/disable")"
expect "the secret in the address" 403 "$(see -d x=y "$peer/disable?form=$form")"
expect "a change by GET" 404 "$(see "$peer/disable?form=$form")"
expect "the file" "$before" "$(sha256sum </etc/wireguard/wg1.conf)"

say "a change by somebody who does not wait for the answer has its line"
# Another command has the tunnel, so the change waits until the connection is gone.
exec {lock}>>/run/linerate/wg1.lock
flock "$lock"
on h1 timeout 60 curl -s -b "$WORK/jar" -d "form=$form&name=tablet" "$PAGE/tunnels/wg1/add" >/dev/null {lock}>&- &
wait_for 30 "the change" pgrep -f 'client add --server=wg1 .*tablet'
kill "$(pgrep -x curl)"
hung_up() { [[ -z $(on h1 ss -Hnt state established dport = :7789) ]]; }
wait_for 30 "the connection to be gone" hung_up
exec {lock}>&-
has_line() { grep -q '^audit: .*: added tablet to wg1' "$SCENARIO_LOGS/web.log"; }
wait_for 60 "the line of the change" has_line

say "what is kept for many who say nothing"
ip netns exec h1 python3 - >"$WORK/heads" <<'PY' &
import socket, time
head = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:7789\r\nx: " + b"y" * 14000
pages = [socket.create_connection(("127.0.0.1", 7789)) for _ in range(128)]
for page in pages:
    page.sendall(head)
print("said", flush=True)
time.sleep(1000)
PY
silent=$!
wait_for 20 "128 connections that have said something" grep -q said "$WORK/heads"
wait_for 60 "an answer beside them" eval '[[ $(told "$PAGE/login") == 200 ]]'
expect_at_most "kilobytes of RSS" 40000 "$(peak_rss_kb "${PID[web]}")"
kill "$silent"

say "the helper"
expect_failure "another user" setpriv --reuid=12345 --regid=12345 --clear-groups \
  python3 -c "import socket; socket.socket(socket.AF_UNIX).connect('$HELPER')"
refused() { # WHAT REQUEST
  local reply
  reply=$(ask <<<"$2")
  [[ $reply == '{"reply":"refused"'* ]] || fail "$1: $reply"
  say "$1: $reply"
}
refused "nonsense" nonsense
refused "a path" '{"ask":"file","tunnel":"/etc/wireguard/wg1.conf","client":"phone"}'
refused "another command" '{"ask":"run","tunnel":"wg1"}'
refused "an option for a name" '{"ask":"change","tunnel":"wg1","change":{"do":"remove","client":"--yes"}}'
set='"do":"set","client":"phone","quota":"","monthly":false,"note"'
refused "a line too many" "{\"ask\":\"change\",\"tunnel\":\"wg1\",\"change\":{$set:\"a\\nPostUp = id\"}}"
head -c 100000 /dev/zero | tr '\0' x >"$WORK/long"
refused "a request without an end" "{\"ask\":\"peer\",\"tunnel\":\"wg1\",\"key\":\"$(<"$WORK/long")\"}"
kill "${PID[helper]}"
wait_for 20 "the helper to end" gone helper
expect "without it" 503 "$(see "$PAGE/")"
grep -q 'systemctl restart linerate-web-helper.socket' <<<"$(on h1 curl -s -b "$WORK/jar" "$PAGE/")" || fail "no advice"
helper
before=$(sha256sum </etc/wireguard/wg1.conf)
for change in '"do":"disable","client":"phone"' '"do":"remove","client":"phone"' "$set:\"\"" \
  '"do":"renew","client":"phone","expires":"1d"' '"do":"rename","client":"phone","name":"x"' \
  '"do":"add","name":"x","expires":"","quota":"","monthly":false,"note":"","split":false,"keepKey":false'; do
  refused "without --write" "{\"ask\":\"change\",\"tunnel\":\"wg1\",\"change\":{$change}}"
done
expect "a form without --write" 409 "$(see -d "form=$form" "$peer/disable")"
expect "the file" "$before" "$(sha256sum </etc/wireguard/wg1.conf)"

say "guesses keep nobody else out, and do not fill the log"
before=$(now_ms)
on h1 python3 - >"$WORK/guesses" <<'PY'
import http.client
page = http.client.HTTPConnection("127.0.0.1", 7789)
for _ in range(500):
    page.request("POST", "/login", "token=guess")
    answer = page.getresponse()
    answer.read()
    print(answer.status)
PY
expect_at_least "guesses that were not looked at" 400 "$(grep -c '^429$' "$WORK/guesses")"
expect "who is in" 200 "$(see "$PAGE/")"
# Twenty, and one a second.
most=$((22 + ($(now_ms) - before) / 1000))
expect_at_most "lines about 501 guesses" $most "$(grep -c 'log-in refused' "$SCENARIO_LOGS/web.log")"

say "what the page's user leaves in its folder is no way to root's files"
mkdir -m 700 "$WORK/roots"
mv "$WORK/state/tokens" "$WORK/state/moved"
ln -s "$WORK/roots" "$WORK/state/tokens"
expect_failure "a token into a folder of root's" token
expect "files there" "" "$(ls -A "$WORK/roots")"
rm "$WORK/state/tokens"
mv "$WORK/state/moved" "$WORK/state/tokens"
rm -f "$WORK"/state/tokens/*
token >"$WORK/token"
expect "the owner of a token" nobody "$(stat -c %U "$WORK"/state/tokens/*)"
! grep -qrF "$(cat "$WORK/token")" "$SCENARIO_LOGS" "$WORK/state" || fail "a token was written down"
! grep -qrF "$form" "$SCENARIO_LOGS" || fail "the secret of forms was written down"
session=$(cookie)
! grep -qrF "${session#*=}" "$SCENARIO_LOGS" "$WORK/state" || fail "a session was written down"
