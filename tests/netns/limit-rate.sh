#!/usr/bin/env bash
# timeout: 240
# A client's rate, by the commands of `linerate client` alone: no direction carries more than it, whatever is sent; it
# changes under traffic and no session is lost; another client, without a rate, loses nothing.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
need jq iperf3

internet
server init --pool 10.7.4.0/24
client() { # WORD... : its output is in $WORK/out
  at h1 timeout 60 "$LINERATE" client "$@" >"$WORK/out" 2>"$WORK/said" || fail "client $*: $(cat "$WORK/said")"
  say "client $*: ok"
}
no_client() { bad linerate client "$@"; } # WORD...
joins() { # HOST IFACE : with the file in $WORK/out, without its default routes
  sed '/^DNS/d; s/^\[Interface\]/&\nTable = off/' "$WORK/out" >"$WORK/$2.conf"
  at "$1" "$LINERATE" up "$WORK/$2.conf" 2>>"$SCENARIO_LOGS/said.log"
  ip -n "$1" route add 10.7.4.0/24 dev "$2"
}
of_laptop() { at h1 wg show wg0 "$1" | awk -v key="$(at laptop wg show wg9 public-key)" -v col="$2" '$1 == key { print $col }'; }
over_rate() { printf 'stats=1\n\n' | uapi wg0 | sed -n 's/^drop_over_rate=//p'; }
one() { at h1 "$LINERATE" client show laptop --json | jq -r "if type == \"array\" then .[0] else . end | $1"; } # FILTER

# Bytes of datagrams that a rate of $1 bit/s may carry in $2 ms: its share and 0.5 s of credit, the queue of 20 ms or
# 30 kB, and a packet. Each packet of 1000 bytes or more may have 32 bytes of ours and 15 of padding.
bound() { echo $((($1 * ($2 + 520) / 8000 + 30000 + 2000) * 105 / 100)); }

# Floods the laptop (down) or the server (up) for two seconds and expects no more than the rate in the counters.
flood() { # down|up BITS
  local column from to at server before began drops
  drops=$(over_rate)
  case $1 in down) column=3 from=h1 to=laptop at=10.7.4.2 ;; up) column=2 from=laptop to=h1 at=10.7.4.1 ;; esac
  ip netns exec "$to" iperf3 -s -1 -B $at -p 5201 >"$SCENARIO_LOGS/iperf-server.log" 2>&1 &
  server=$!
  wait_for 5 "iperf3 -s on $to" listens "$to" 5201
  began=$(now_ms) before=$(of_laptop transfer $column)
  # The dropped packets may include iperf3's report at its end.
  ip netns exec $from timeout 20 iperf3 -u -c $at -p 5201 -b 40M -l 1300 -t 2 >>"$SCENARIO_LOGS/iperf.log" 2>&1 || true
  expect_at_most "bytes $1 at $2 bit/s" "$(bound "$2" $(($(now_ms) - began)))" $(($(of_laptop transfer $column) - before))
  expect_at_least "packets dropped for it" 1 $(($(over_rate) - drops))
  kill $server 2>/dev/null || true
  wait $server 2>/dev/null || true
}

say "added with a rate"
client add laptop --rate 4M/2M
joins laptop wg9
pings laptop 10.7.4.1
in_file "the rate" "^#! Rate = 4M/2M$"
client list
expect "the list" "4M/2M" "$(grep -o '4M[^ ]*' "$WORK/out")"
expect "JSON" "4000000 2000000" "$(one '"\(.rateDownBits) \(.rateUpBits)"')"
at h1 "$LINERATE" metrics wg0 >"$WORK/metrics" 2>>"$SCENARIO_LOGS/said.log"
grep -q '^linerate_client_rate_down_bits{.*} 4000000$' "$WORK/metrics" || fail "the metrics lack the rate"
flood down 4000000
flood up 2000000

say "another client has no rate, and loses nothing by this one's"
client add web
joins web wg8
drops=$(over_rate)
head -c 3000000 /dev/urandom >"$WORK/file"
send_file h1 web 10.7.4.3 "$WORK/file"
send_file web h1 10.7.4.1 "$WORK/file"
expect "packets dropped for a rate" "$drops" "$(over_rate)"

say "changed under traffic: at once, and the session stays"
handshake=$(of_laptop latest-handshakes 2)
daemon=$(daemon_of wg0)
at h1 ping -q -n -i 0.2 10.7.4.2 >/dev/null &
client set laptop --rate 8M
flood down 8000000
flood up 8000000
client set laptop --rate none
drops=$(over_rate)
send_file h1 laptop 10.7.4.2 "$WORK/file"
expect "packets dropped for a rate" "$drops" "$(over_rate)"
expect "JSON" "null null" "$(one '"\(.rateDownBits) \(.rateUpBits)"')"
client set laptop --rate none/1M
send_file h1 laptop 10.7.4.2 "$WORK/file"
flood up 1000000
expect "the session" "$handshake" "$(of_laptop latest-handshakes 2)"
expect "the daemon" "$daemon" "$(daemon_of wg0)"

say "it comes from the file at the next up"
good linerate down wg0
good linerate up wg0
wait_for 10 "the laptop to be back" on laptop ping -n -q -c 1 -W 1 10.7.4.1
flood up 1000000

say "an invalid rate is refused, and changes nothing"
cp /etc/wireguard/wg0.conf "$WORK/before.conf"
for rate in 0 0/5M 1T 20MB 20Mbit -5 5M/ ''; do
  no_client set laptop "--rate=$rate"
  said "what to write" "write 20M|64k to 100G"
done
no_client set laptop --rate none/none
said "what to do" "give one direction a rate"
cmp "$WORK/before.conf" /etc/wireguard/wg0.conf || fail "a refused rate has changed the file"
sed 's/^#! Rate = .*/#! Rate = 0/' "$WORK/before.conf" >/etc/wireguard/wg0.conf
bad linerate reload wg0
said "the line" "wg0.conf:$(grep -n 'Rate = 0' /etc/wireguard/wg0.conf | cut -d : -f 1):.*is not a rate that can be kept"
cp "$WORK/before.conf" /etc/wireguard/wg0.conf
good linerate reload wg0
