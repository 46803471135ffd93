#!/usr/bin/env bash
# timeout: 60
# Tunnels that come up and go down at the same time do not share a table, a mark or a rule; one of a name comes up once.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
key h3
daemon h2 wg4
on h2 wg set wg4 listen-port 50004 private-key "$WORK/h3.key" peer "$(public h1)" allowed-ips 10.8.0.1/32
wg_address h2 wg4 10.8.0.2/24
wait_for 5 "wg4 to open its port" listens_udp h2 50004
echo "nameserver 192.0.2.54" >"$WORK/etc/resolv.conf"
tunnel_file wg1 0.0.0.0/0,::/0 "DNS = 192.0.2.53"
(umask 077 && cat >/etc/wireguard/wg3.conf) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.8.0.1/24
DNS = 192.0.2.63
[Peer]
PublicKey = $(public h3)
Endpoint = 192.0.2.2:50004
AllowedIPs = 0.0.0.0/0, ::/0
CONF

# Each turn at the same time; their statuses are in $STATUSES, sorted.
together() { # TURN... : WHO VERB NAME as one word each
  local turn pids=()
  rm -f "$WORK"/together.*
  for turn; do
    {
      STATUS=0
      # shellcheck disable=SC2086
      started_turn $turn >"$WORK/together.${turn// /-}.$BASHPID" 2>&1 || STATUS=$?
      exit "$STATUS"
    } &
    pids+=($!)
  done
  STATUSES=
  for turn in "${pids[@]}"; do
    if wait "$turn"; then STATUSES+="0 "; else STATUSES+="$? "; fi
  done
  cat "$WORK"/together.* >>"$SCENARIO_LOGS/said.log"
  STATUSES=$(tr ' ' '\n' <<<"$STATUSES" | grep . | sort -n | xargs)
}
remember
for round in 1 2 3 4 5; do
  for who in wg-quick linerate; do
    together "$who up wg1" "$who up wg3"
    expect "$who, round $round: statuses of up" "0 0" "$STATUSES"
    [[ $(on h1 wg show wg1 fwmark) != "$(on h1 wg show wg3 fwmark)" ]] || fail "$who: both tunnels have the mark $(on h1 wg show wg1 fwmark)"
    pings h1 10.9.0.2
    pings h1 10.8.0.2
    together "$who down wg1" "$who down wg3"
    expect "$who, round $round: statuses of down" "0 0" "$STATUSES"
    is_gone wg1
    is_gone wg3
    as_before "$who, round $round"
  done
done

say "the same one twice"
for who in wg-quick linerate; do
  together "$who up wg1" "$who up wg1"
  expect "$who: statuses of up" "0 1" "$STATUSES"
  pings h1 10.9.0.2
  together "$who down wg1" "$who down wg1" "$who down wg1"
  expect "$who: statuses of down" "0 1 1" "$STATUSES"
  is_gone wg1
  as_before "$who"
done
