#!/usr/bin/env bash
# timeout: 120
# Metrics of a tunnel: what promtool and a real Prometheus make of them, in a file, on a socket and on a port.
source "$(dirname "$0")/lib.sh"
need curl promtool prometheus python3

two_hosts
tunnel v4
pings h1 10.9.0.2

metrics() { on h1 "$LINERATE" metrics "$@"; }
value() { awk -v name="$1" 'index($0, name) == 1 { print $NF }' "$WORK/metrics"; } # BEGINNING-OF-SERIES

say "what promtool makes of each dialect"
for dialect in mindflavor mdlayher linerate mindflavor,mdlayher,linerate; do
  metrics --dialect $dialect >"$WORK/metrics"
  # The names of others are what they are: lints about them are for those who chose them.
  promtool check metrics <"$WORK/metrics" >"$WORK/lint" 2>&1 || [[ $? == 3 ]] || fail "promtool: $(cat "$WORK/lint")"
  if grep linerate_ "$WORK/lint"; then fail "promtool has something to say of our own names"; fi
  ! grep -qi "error" "$WORK/lint" || fail "promtool: $(cat "$WORK/lint")"
done
# A keepalive may go at any time: what belongs together is read again then.
reads_as_one() {
  before=$(on h1 wg show wg1 transfer) &&
    metrics --dialect mindflavor,mdlayher,linerate >"$WORK/metrics" &&
    [[ $(on h1 wg show wg1 transfer) == "$before" ]]
}
wait_for 10 "metrics between two packets" reads_as_one
read -r _ received sent <<<"$before"
expect "tunnel up" 1 "$(value 'linerate_tunnel_up{interface="wg1"}')"
expect "handshakes" 1 "$(value 'linerate_handshakes_total{interface="wg1",result="completed"}')"
expect "bytes sent" "$sent" "$(value 'wireguard_sent_bytes_total{interface="wg1"')"
expect "bytes received, as mdlayher has it" "$received" "$(value 'wireguard_peer_receive_bytes_total{device="wg1"')"
expect "the last handshake" "$(handshake_time h1 wg1)" "$(value 'wireguard_latest_handshake_seconds{interface="wg1"')"
expect "connected clients" 1 "$(value 'linerate_clients{interface="wg1",state="connected"}')"
expect_at_least "when the last packet came" "$(($(date +%s) - 60))" "$(value 'linerate_peer_last_received_timestamp_seconds{interface="wg1"')"
no_ping h1 10.9.0.77
metrics >"$WORK/metrics"
expect_at_least "packets to nobody" 1 "$(value 'linerate_drops_total{interface="wg1",reason="no_peer"}')"

say "into a file"
metrics --output "$WORK/linerate.prom"
expect "the file's mode" 644 "$(stat -c %a "$WORK/linerate.prom")"
expect "files" linerate.prom "$(find "$WORK" -name '*linerate*' -printf '%f\n')"
expect_failure "a folder that is not there" metrics --output "$WORK/nowhere/x.prom"

say "served on a socket of root's alone"
socket=$WORK/metrics.sock
ip netns exec h1 "$LINERATE" metrics --listen "unix:$socket" &
server=$!
wait_for 30 "the socket" test -S "$socket"
expect "the socket's mode" 600 "$(stat -c %a "$socket")"
get() { curl -sS -m 60 --unix-socket "$socket" "$@"; }
expect "the classic type" "text/plain; version=0.0.4; charset=utf-8" "$(get -o /dev/null -w '%{content_type}' http://x/metrics)"
type=$(get -H 'Accept: application/openmetrics-text' -o "$WORK/open" -w '%{content_type}' http://x/metrics)
expect "the type of OpenMetrics" "application/openmetrics-text; version=1.0.0; charset=utf-8" "$type"
expect "its last line" "# EOF" "$(tail -n 1 "$WORK/open")"
expect "other paths" 404 "$(get -o /dev/null -w '%{http_code}' http://x/)"
expect "other methods" 405 "$(get -X POST -o /dev/null -w '%{http_code}' http://x/metrics)"
say "somebody who says nothing keeps nobody waiting"
# It cuts them off after a while, so on a machine that is very slow it may have to be tried again.
beside_the_silent() {
  python3 - "$socket" <<'PY'
import select, socket, sys
def connect():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    return connection
silent = [connect() for _ in range(3)]
asks = connect()
asks.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
answer = asks.recv(100)
sys.exit(not answer.startswith(b"HTTP/1.1 200 ") or len(select.select(silent, [], [], 0)[0]))
PY
}
wait_for 60 "an answer while others say nothing" beside_the_silent
kill $server
wait_for 30 "the socket to go" test ! -e "$socket"

say "another address than that of this host"
expect_failure "without being told" metrics --listen 192.0.2.1:9586

say "scraped by Prometheus, which asks for OpenMetrics"
metrics --listen 127.0.0.1:9586 &
cat >"$WORK/prometheus.yml" <<'YML'
global: { scrape_interval: 1s, scrape_timeout: 1s }
scrape_configs: [{ job_name: linerate, static_configs: [{ targets: ["127.0.0.1:9586"] }] }]
YML
on h1 prometheus --config.file="$WORK/prometheus.yml" --storage.tsdb.path="$WORK/tsdb" \
  --web.listen-address=127.0.0.1:9090 >"$SCENARIO_LOGS/prometheus.log" 2>&1 &
query() { on h1 curl -sS -m 5 -G --data-urlencode "query=$1" http://127.0.0.1:9090/api/v1/query | jq -r '.data.result[0].value[1] // empty'; }
is_up() { [[ $(query 'up') == 1 ]]; }
wait_for 30 "a scrape that succeeded" is_up
bytes_agree() { [[ $(query 'wireguard_sent_bytes_total{interface="wg1"}') == "$(sent h1 wg1)" ]]; }
wait_for 30 "the bytes sent, in Prometheus" bytes_agree
expect "series that Prometheus refused" "" "$(query 'prometheus_target_scrapes_sample_duplicate_timestamp_total > 0')"

say "a daemon that was killed is a tunnel that is gone, and the next one is read"
stop_daemon wg1
wait_for 30 "the tunnel to be gone" eval '[[ -z $(on h1 curl -sS http://127.0.0.1:9586/metrics | grep "interface=\"wg1\"") ]]'
daemon h1 wg1
wait_for 30 "the tunnel to be back" eval 'on h1 curl -sS http://127.0.0.1:9586/metrics | grep -q "linerate_tunnel_up{interface=\"wg1\"} 1"'
