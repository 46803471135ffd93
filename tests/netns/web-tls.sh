#!/usr/bin/env bash
# timeout: 60
# The page over TLS on a public address, with a certificate that openssl made; and what does not start: an address that
# everybody can read along on, a key that is not the certificate's, one that cannot be read.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/web.bash"
need openssl

two_hosts
helper
chmod 711 "$WORK"
certificate() { # NAME HOST
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$2" \
    -addext "subjectAltName=DNS:$2" -keyout "$WORK/$1.key" -out "$WORK/$1.crt" 2>>"$SCENARIO_LOGS/openssl.log" || fail "openssl has made no certificate"
  chown nobody "$WORK/$1.key"
}
certificate own vpn.example.org
certificate other other.example.org
tls=(--tls-certificate "$WORK/own.crt" --tls-key "$WORK/own.key")

say "what does not start"
refuses() { # WHAT WORDS [OPTION]...
  serve "${@:3}"
  wait_for 30 "$1: the page to end" gone web
  tail -n 1 "$SCENARIO_LOGS/web.log" | grep -qE -- "$2" || fail "$1: $(tail -n 1 "$SCENARIO_LOGS/web.log")"
  say "$1: $(tail -n 1 "$SCENARIO_LOGS/web.log")"
}
refuses "a public address without TLS" "--tls-certificate" --listen 192.0.2.1:7789
refuses "all addresses without TLS" "--tls-certificate" --listen 0.0.0.0:7789
refuses "a key that is another's" "own.crt with the key in .*other.key" --listen 192.0.2.1:7789 \
  --tls-certificate "$WORK/own.crt" --tls-key "$WORK/other.key"
refuses "a certificate that is none" "no certificate" --listen 192.0.2.1:7789 \
  --tls-certificate "$WORK/own.key" --tls-key "$WORK/own.key"
chown root "$WORK/own.key"
refuses "a key that it may not read" "own.key" --listen 192.0.2.1:7789 "${tls[@]}"
chown nobody "$WORK/own.key"

say "with TLS"
serve --listen 192.0.2.1:7789 --name vpn.example.org "${tls[@]}"
PAGE=https://vpn.example.org:7789
there=(--cacert "$WORK/own.crt" --resolve vpn.example.org:7789:192.0.2.1)
told() { on h2 curl -s -o /dev/null -w '%{http_code}' "${there[@]}" "$@"; }
answers_tls() { [[ $(told "$PAGE/login") == 200 ]]; }
wait_for 20 "the page" answers_tls
for version in 1.2 1.3; do
  expect "TLS $version" 200 "$(told --tlsv$version --tls-max $version "$PAGE/login")"
done
expect "without TLS" 000 "$(told http://vpn.example.org:7789/login)"
expect "another name" 421 "$(told -k --resolve evil.example:7789:192.0.2.1 https://evil.example:7789/login)"
# s_client, because curl may be built without old versions.
! on h2 openssl s_client -connect 192.0.2.1:7789 -tls1_1 -cipher 'ALL:@SECLEVEL=0' </dev/null >"$WORK/old" 2>&1 ||
  fail "TLS 1.1 is spoken"
expect "logging in" 303 "$(told -c "$WORK/jar" -d "token=$(token)" "$PAGE/login")"
grep -qP '^#HttpOnly_vpn.example.org\tFALSE\t/\tTRUE\t\d+\t__Host-linerate-session\t[0-9a-f]{40}$' "$WORK/jar" ||
  fail "the cookie: $(tail -n 1 "$WORK/jar")"
expect "the page with it" 200 "$(told -b "$WORK/jar" "$PAGE/")"
origin="Origin: http://vpn.example.org:7789"
expect "a form of a page without TLS" 403 "$(told -b "$WORK/jar" -H "$origin" -d x=y "$PAGE/logout")"
say "somebody who does not finish the handshake keeps nobody waiting"
for _ in {1..20}; do on h2 timeout 20 nc 192.0.2.1 7789 < <(sleep 19) >/dev/null & done
silent() { (($(on h2 ss -Hnt state established dport = :7789 | wc -l) >= 20)); }
wait_for 5 "twenty who are silent" silent
expect "an answer beside them" 200 "$(told "$PAGE/login")"
kill "${PID[web]}"
wait_for 20 "the page to end" gone web
