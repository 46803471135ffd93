#!/usr/bin/env bash
# timeout: 120
# /livez, /readyz with CheckAlive, and /metrics, in wireproxy's form and in that of Prometheus; no secret is in them.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/proxy.bash"
need jq promtool
far
info=http://127.0.0.1:9080
readyz() { [[ $(code $info/readyz) == "$1" ]]; } # STATUS

for stack in "${stacks[@]}"; do
  say "$stack: nothing to check"
  options=(-i 127.0.0.1:9080)
  start "$stack" '[Socks5]' 'BindAddress = 127.0.0.1:1080'
  wait_for 10 "the health service" listens h1 9080
  expect "readyz" "{} 200" "$(get -w ' %{http_code}' $info/readyz | tr -d '\n')"
  [[ $stack == theirs ]] || expect "livez" 200 "$(code $info/livez)"
  stop

  say "$stack: an address that answers, and then does not"
  MORE=('CheckAlive = 10.9.0.2, fd09::2' 'CheckAliveInterval = 1')
  start "$stack" '[Socks5]' 'BindAddress = 127.0.0.1:1080'
  MORE=()
  wait_for 20 "readyz 200" readyz 200
  expect "addresses that have answered" '["10.9.0.2","fd09::2"]' "$(get $info/readyz | jq -c 'keys')"
  now=$(date +%s)
  expect_at_most "seconds since" 20 "$(get $info/readyz | jq "[$now - .[]] | max")"
  block h2 in icmp type echo-request
  wait_for 20 "readyz 503" readyz 503
  expect "and the answer still names both" 2 "$(get $info/readyz | jq length)"
  unblock h2
  wait_for 20 "readyz 200 again" readyz 200
  say "$stack: the tunnel is cut"
  block h2 in udp dport 50002
  wait_for 20 "readyz 503" readyz 503
  [[ $stack == theirs ]] || expect "livez, which is about the process" 200 "$(code $info/livez)"
  unblock h2
  wait_for 40 "readyz 200 again" readyz 200

  say "$stack: figures"
  expect "what is fetched" 200 "$(code -x socks5h://127.0.0.1:1080 http://host.example/)"
  get $info/metrics >"$WORK/metrics"
  grep -q '^private_key=REDACTED' "$WORK/metrics" || fail "no private_key=REDACTED: $(cat "$WORK/metrics")"
  grep -q "^public_key=$(public h2 | hex)" "$WORK/metrics" || fail "the peer is not there: $(cat "$WORK/metrics")"
  grep -qE '^rx_bytes=[1-9]' "$WORK/metrics" || fail "no bytes were received: $(cat "$WORK/metrics")"
  if [[ $stack != theirs ]]; then
    get -H 'Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5' $info/metrics >"$WORK/prometheus"
    promtool check metrics <"$WORK/prometheus" || fail "promtool complains of: $(cat "$WORK/prometheus")"
    ! grep -qF -e "$(cat "$WORK/h1.key")" -e "$(hex <"$WORK/h1.key")" "$WORK/metrics" "$WORK/prometheus" || fail "the private key"
    expect "another path" 404 "$(code $info/other)"
  fi
  stop
done
