#!/usr/bin/env bash
# timeout: 400
# Endpoints of a proxy that are names: one that nobody knows yet, one whose first address is another's by now, one that moves
# while connections are open (as with DynDNS); a peer that roams. And names that this host's resolver is asked for.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/proxy.bash"
[[ ${stacks[0]} != theirs ]] || skip "wireproxy looks endpoints up once"
own_file /etc/hosts <<<"127.0.0.1 localhost"
hosts=$WORK/etc/hosts
far
socks=('[Socks5]' 'BindAddress = 127.0.0.1:1080')

fetches() { [[ $(on h1 curl -s --max-time 5 -o /dev/null -w '%{http_code}' -x socks5h://127.0.0.1:1080 http://10.9.0.2/) == 200 ]]; }
known() { printf '%s\n' "127.0.0.1 localhost" "$@" >"$hosts"; } # LINE... : what the host's resolver knows
ENDPOINT=vpn.example:50002
# A peer that knows nothing of us, and sends nothing before we do.
forget() {
  on h2 wg set wg2 peer "$(public h1)" remove
  on h2 wg set wg2 peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128
}

for stack in "${stacks[@]}"; do
  say "$stack: a name that nobody knows yet"
  known
  forget
  start "$stack" "${socks[@]}"
  wait_for 15 "it to be said" grep -q 'vpn.example:50002 has no address yet' "$SCENARIO_LOGS/proxy.log"
  ! fetches || fail "there is a tunnel"
  known "192.0.2.2 vpn.example"
  wait_for 60 "the name to be found" fetches
  : >"$SCENARIO_LOGS/proxy.log"

  say "$stack: a peer that roams is not sent back"
  on h2 wg set wg2 listen-port 50012
  on h2 ping -n -c 1 -W 1 10.9.0.1 >/dev/null || true
  wait_for 20 "its new port" fetches
  expect "what is said of its name" "" "$(grep vpn.example "$SCENARIO_LOGS/proxy.log" || true)"
  on h2 wg set wg2 listen-port 50002
  stop

  say "$stack: a name whose first address is another's by now"
  known "192.0.2.99 vpn.example"
  forget
  start "$stack" "${socks[@]}"
  ! fetches || fail "there is a tunnel"
  known "192.0.2.2 vpn.example"
  wait_for 60 "its address of now" fetches
  [[ $stack == "${stacks[-1]}" ]] || stop
done

say "a tunnel whose other end moves"
forget
ip -n h2 addr add 192.0.2.22/24 dev e2
ip -n h2 addr del 192.0.2.2/24 dev e2
ip -n h2 addr add 192.0.2.22/24 dev e2 2>/dev/null || true
known "192.0.2.22 vpn.example"
begun=$(now_ms)
wait_for 200 "the new address" fetches
note "connected again after $((($(now_ms) - begun) / 1000)) s"
grep -q 'vpn.example:50002 now resolves to 192.0.2.22' "$SCENARIO_LOGS/proxy.log" || fail "$(cat "$SCENARIO_LOGS/proxy.log")"
stop

say "one connection, for which nobody looks up names again"
known
proxy_file "${stacks[0]}"
status "${as_user[@]}" "${program[@]}" "$config" -W 10.9.0.2:80 </dev/null
expect "exit code" 1 "$STATUS"
grep -q 'vpn.example:50002 has no address' "$WORK/said" || fail "$(cat "$WORK/said")"

say "one connection, which is reset"
known "192.0.2.22 vpn.example"
status "${as_user[@]}" "${program[@]}" "$config" -W '[10.9.0.2]:70' < <(echo && sleep 20)
expect "exit code" 1 "$STATUS"
grep -q 'the connection to 10.9.0.2:70 was reset' "$WORK/said" || fail "$(cat "$WORK/said")"

say "names of this host's resolver, which is a process of its own"
known "192.0.2.22 vpn.example" "10.9.0.2 known.example"
DNS='' start "${stacks[0]}" '[Proxy]' 'Names = system' "${socks[@]}"
expect "a name" 200 "$(code -x socks5h://127.0.0.1:1080 http://known.example/)"
expect "a name that there is none of" 97 "$(failed --max-time 20 -x socks5h://127.0.0.1:1080 http://none.example/)"
resolver=$(pgrep -u 1000 -f 'linerate --resolve$')
expect "what it may do besides" "0000000000000000 1" "$(sed -n 's/^\(CapPrm\|NoNewPrivs\):\t//p' "/proc/$resolver/status" | xargs)"
expect "its environment" "" "$(tr '\0' '\n' <"/proc/$resolver/environ" | grep -v ^LD_ || true)"
kill -KILL "$resolver"
wait_for 10 "its end to be told" grep -q "asks this host's resolver has ended" "$SCENARIO_LOGS/proxy.log"
expect "an address, still" 200 "$(code -x socks5h://127.0.0.1:1080 http://10.9.0.2/)"
stop
