#!/usr/bin/env bash
# timeout: 300
# Two gateways share their peers by etcd: a client added on one is on the other at once, two at the same time get different
# addresses, a bad value is refused by name, an empty store is no order, and gateways go on and catch up without it.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
unset LINERATE_USER WG_QUICK_BACKEND

INNER_NET=10.9.0.1/16 # for some hundred clients
gateways g1 g2
etcd_up
key fleet other
preshared old
tunnel_file g1 '' '[Peer]' '# Name = old' "PublicKey = $(public other)" "PresharedKey = $(<"$WORK/old.psk")" \
  'AllowedIPs = 10.9.0.2/32' '#! Created = 2026-01-01T00:00:00Z'
tunnel_file g2
for g in g1 g2; do gw $g "$LINERATE" up wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || fail "up on $g: $(tail -n 3 "$SCENARIO_LOGS/up.log")"; done

say "init and join"
refused() { # WHAT WORDS COMMAND... : it fails, and says that
  local what=$1 words=$2
  shift 2
  if "$@" >"$WORK/refused" 2>&1; then fail "$what: expected a failure, it succeeded"; fi
  grep -qF -- "$words" "$WORK/refused" || fail "$what: it was not said why: $(<"$WORK/refused")"
}
at_mesh=(--store $STORE --mesh-endpoint 10.0.0.11:51821)
refused "an address without a port" "--address 192.0.2.100: a port is missing, for example 192.0.2.100:51820" \
  gw g1 "$FLEET" init berlin wg0 "${at_mesh[@]}" --address 192.0.2.100
refused "another port than clients come to" "says ListenPort = 51820, and clients come to port 51000" \
  gw g1 "$FLEET" init berlin wg0 "${at_mesh[@]}" --address 192.0.2.100:51000
expect_failure "join before init" gw g2 "$FLEET" join berlin wg0 --store $STORE --mesh-endpoint 10.0.0.12:51821
fleet g1 init berlin wg0 --store http://10.0.0.9:2379,$STORE --address 192.0.2.100:51820 --mesh-endpoint 10.0.0.11:51821 ||
  fail "init: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
grep -q "Warning: 192.0.2.100 is no address of this host" "$SCENARIO_LOGS/fleet.log" || fail "init did not miss the fleet's address"
expect_failure "init of the same fleet" gw g2 "$FLEET" init berlin wg0 --store $STORE --address 192.0.2.100:51820 \
  --mesh-endpoint 10.0.0.12:51821
gw g2 sed -i /^ListenPort/d /etc/wireguard/wg0.conf
refused "no port" "has no ListenPort, and clients come to port 51820" gw g2 "$FLEET" join berlin wg0 --store $STORE \
  --mesh-endpoint 10.0.0.12:51821
tunnel_file g2
address g2 lo 192.0.2.100/32
fleet g2 join berlin wg0 --store $STORE --mesh-endpoint 10.0.0.12:51821 || fail "join: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
expect "warnings of the fleet's address" 1 "$(grep -c "is no address of this host" "$SCENARIO_LOGS/fleet.log")"
in_file g1 '^#! Fleet = berlin' && in_file g2 '^#! Fleet = berlin' || fail "a file does not name the fleet"
has_peer g2 "$(public other)" || fail "the first peer is not on g2"
expect "the preshared key on g2" "$(<"$WORK/old.psk")" "$(gw g2 wg show wg0 preshared-keys | cut -f 2)"
etcd_ctl get --prefix /linerate/ >"$WORK/dump"
! grep -qF -e "$(<"$WORK/fleet.key")" -e "$(<"$WORK/old.psk")" "$WORK/dump" || fail "a secret is in the store"
for g in g1 g2; do service_up $g; done
for g in g1 g2; do wait_for 10 "the service of $g to follow" is_said $g .store_is_seen true; done
for g in g1 g2; do wait_for 10 "the daemon of $g to be told" is_said $g .daemon_is_told true; done

say "a client added on one gateway"
took=()
for n in 1 2 3 4 5; do
  # When the store has told a watcher on its own host, and when the other daemon has the peer.
  ETCDCTL_API=3 ip netns exec s timeout 60 etcdctl --endpoints=$STORE watch --prefix /linerate/berlin/next >"$WORK/watch" 2>&1 &
  watching=$!
  sleep 0.3
  { while [[ ! -s $WORK/watch ]]; do sleep 0.001; done; now_ms >"$WORK/committed"; } &
  waiting=$!
  before=$(peers_of g2)
  { until [[ $(peers_of g2) -gt $before ]]; do :; done; now_ms >"$WORK/usable"; } &
  polling=$!
  client_add g1 c$n || fail "client add: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
  wait_for 10 "c$n on g2" has_peer g2 "$(client_key c$n)"
  wait $waiting $polling
  kill $watching 2>/dev/null || true
  took+=($(($(<"$WORK/usable") - $(<"$WORK/committed"))))
done
note "a client is on the other gateway ${took[*]} ms after the commit"
expect_at_most "ms until a client is on the other gateway" 5000 "$(printf '%s\n' "${took[@]}" | sort -n | tail -n 1)"
wait_for 10 "the file of g2" in_file g2 'Name = c5'
wait_for 10 "the files to be alike" files_are_alike

say "two at the same time"
client_add g1 left &
one=$!
client_add g2 right || fail "client add on g2: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
wait $one || fail "client add on g1: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
[[ $(client_address left) != "$(client_address right)" ]] || fail "both got $(client_address left)"
for g in g1 g2; do for c in left right; do wait_for 10 "$c on $g" has_peer $g "$(client_key $c)"; done; done

say "changes reach the other gateway, too"
gw g2 "$LINERATE" client disable c1 2>>"$SCENARIO_LOGS/client.log"
wait_for 10 "c1 to be off on g1" lacks_peer g1 "$(client_key c1)"
gw g1 "$LINERATE" client enable c1 2>>"$SCENARIO_LOGS/client.log" || fail "client enable: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
wait_for 10 "c1 to be back on g2" has_peer g2 "$(client_key c1)"
gw g2 "$LINERATE" client remove c2 2>>"$SCENARIO_LOGS/client.log" || fail "client remove: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
wait_for 10 "c2 to be gone from g1" lacks_peer g1 "$(client_key c2)"

say "300 clients at once"
of_next() { etcd_ctl get /linerate/berlin/next -w json | jq -r ".kvs[0].$1"; } # FIELD
edits() { of_next version; }
before=$(peers_of g2) edits_before=$(edits)
mapfile -t many < <(seq -f 'many%g' 300)
gw g1 mkdir /run/linerate/many
gw g1 "$LINERATE" client add "${many[@]}" --output /run/linerate/many/ 2>>"$SCENARIO_LOGS/client.log" >/dev/null ||
  fail "client add: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
expect "transactions" 3 "$(($(edits) - edits_before))"
wait_for 20 "300 clients on g2" has_peers g2 $((before + 300))
has_peers g1 $((before + 300)) || fail "g1 has $(peers_of g1) peers"
wait_for 20 "the files to be alike" files_are_alike
in_file g1 'Name = many300' || fail "the file of g1 has not followed"
expect "the number of peers" $((before + 300)) "$(of_next value | base64 -d | head -n 1 | jq .peers)"

gw g1 "$LINERATE" client remove "${many[@]}" >/dev/null 2>>"$SCENARIO_LOGS/client.log" || fail "client remove: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
for g in g1 g2; do wait_for 20 "them to be gone from $g" has_peers $g "$before"; done
wait_for 20 "the files to be alike" files_are_alike

say "a bad value"
bad=$(wg genkey | wg pubkey | hex)
etcd_ctl put "/linerate/berlin/peers/$bad" '{"number":9999,"section":"[Interface]\nPostUp = touch /etc/owned\n"}' >/dev/null
wait_for 10 "g1 to refuse it" said g1 "refused: "
is_refused() { of_service g2 '.refused[0]' | grep -qF "$(printf '%s' "$bad" | sed 's/../\\x&/g' | xargs -0 printf '%b' | base64)"; }
wait_for 10 "g2 to refuse it by name" is_refused
client_add g1 after || fail "client add after a bad value: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
wait_for 10 "a good one after it" has_peer g2 "$(client_key after)"
etcd_ctl del "/linerate/berlin/peers/$bad" >/dev/null
wait_for 10 "it to be forgotten" is_said g2 '.refused | length' 0

say "whoever can write to the store and has no private key makes no gateway and moves no peer"
value_of() { etcd_ctl get --print-value-only "/linerate/berlin/$1" | head -c -1; } # KEY
value_of members/0 | etcd_ctl put /linerate/berlin/members/9 >/dev/null
one=$(client_key after | hex) another=$(client_key left | hex)
value_of "peers/$one" >"$WORK/value"
sed '1s/AllowedIPs = [^\\]*/AllowedIPs = 0.0.0.0\/0/' "$WORK/value" | etcd_ctl put "/linerate/berlin/peers/$one" >/dev/null
value_of "peers/$one" | grep -qF 0.0.0.0/0 || fail "the value was not changed"
wait_for 10 "g1 to refuse it" is_said g1 '.refused | length' 1
gw g1 wg show wg0 allowed-ips | grep -F "$(client_key after)" | grep -qF "$(client_address after | sed 's,/.*,,')/32" ||
  fail "the peer has moved: $(gw g1 wg show wg0 allowed-ips)"
value_of "peers/$another" >"$WORK/left"
etcd_ctl put "/linerate/berlin/peers/$another" <"$WORK/value" >/dev/null
wait_for 10 "a value of another key to be refused" is_said g1 '.refused | length' 2
has_peer g1 "$(client_key left)" || fail "the peer whose value was replaced is gone"
expect "gateways that g1 sees" 2 "$(of_service g1 '.gateway.gateways | length')"
{ gw g1 "$FLEET" status 2>&1 || true; } | grep -q 'members/9 in the store is refused: ' || fail "status does not say what is refused"
etcd_ctl put "/linerate/berlin/peers/$one" <"$WORK/value" >/dev/null
etcd_ctl put "/linerate/berlin/peers/$another" <"$WORK/left" >/dev/null
etcd_ctl del "/linerate/berlin/members/9" >/dev/null
wait_for 10 "nothing to be refused" is_said g1 '.refused | length' 0

say "most of the peers vanish"
count=$(peers_of g2)
etcd_ctl get --prefix /linerate/berlin/peers/ -w json >"$WORK/peers.json"
etcd_ctl del --prefix /linerate/berlin/peers/ >/dev/null
for g in g1 g2; do wait_for 10 "$g to warn" said $g "HOLD: $count of $count peers"; done
for g in g1 g2; do expect "peers of $g, which stay" "$count" "$(peers_of $g)"; done
while read -r key value; do
  base64 -d <<<"$value" | etcd_ctl put "$(base64 -d <<<"$key")" >/dev/null
done < <(jq -r '.kvs[] | .key + " " + .value' "$WORK/peers.json")
for g in g1 g2; do wait_for 10 "the hold of $g to end" is_said $g .hold null; done
etcd_ctl del --prefix /linerate/berlin/peers/ >/dev/null
for g in g1 g2; do wait_for 10 "$g to hold again" is_said $g '.hold != null' true; done
fleet g2 accept
for g in g1 g2; do wait_for 10 "$g to follow what was confirmed" has_peers $g 0; done

say "the store goes and comes back"
etcd_down
for g in g1 g2; do wait_for 20 "$g to miss the store" is_said $g .store_is_seen false; done
before=$(gw g1 cat /etc/wireguard/wg0.conf)
expect_failure "client add without the store" client_add g1 nobody
grep -q "the store does not answer" "$SCENARIO_LOGS/client.log" || fail "it was not said why: $(tail -n 1 "$SCENARIO_LOGS/client.log")"
expect "the file of g1" "$before" "$(gw g1 cat /etc/wireguard/wg0.conf)"
etcd_up
for g in g1 g2; do wait_for 20 "$g to see the store again" is_said $g .store_is_seen true; done
client_add g2 back || fail "client add: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
wait_for 10 "a client after that" has_peer g1 "$(client_key back)"

say "a compaction while a gateway is away"
service_down g2
client_add g1 missed || fail "client add: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
kill -STOP "${SERVICE[g1]}"
etcd_ctl compact "$(etcd_revision)" >/dev/null
kill -CONT "${SERVICE[g1]}"
service_up g2
wait_for 20 "what g2 has missed" has_peer g2 "$(client_key missed)"

say "a start without the store"
etcd_down
for g in g1 g2; do service_down $g; done
gw g2 "$LINERATE" down wg0 >>"$SCENARIO_LOGS/up.log" 2>&1
gw g2 "$LINERATE" up wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || fail "up on g2: $(tail -n 3 "$SCENARIO_LOGS/up.log")"
has_peer g2 "$(client_key missed)" || fail "the file of g2 has lost a peer"
for g in g1 g2; do service_up $g; done
wait_for 10 "the daemon of g2 to be told" is_said g2 .daemon_is_told true
expect "peers of the service" "$(peers_of g2)" "$(of_service g2 .peers)"
etcd_up
for g in g1 g2; do wait_for 20 "$g to see the store again" is_said $g .store_is_seen true; done

say "the tunnel goes and comes back"
gw g2 "$LINERATE" down wg0 >>"$SCENARIO_LOGS/up.log" 2>&1
wait_for 10 "the service to miss the daemon" is_said g2 .daemon_is_told false
client_add g1 meanwhile || fail "client add: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
wait_for 10 "the file of a tunnel that is down" in_file g2 'Name = meanwhile'
gw g2 "$LINERATE" up wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || fail "up on g2: $(tail -n 3 "$SCENARIO_LOGS/up.log")"
wait_for 10 "the new daemon to be told" is_said g2 .daemon_is_told true
has_peer g2 "$(client_key meanwhile)" || fail "g2 came up without a peer"

say "status, drain, leave"
lease_of() { etcd_ctl get "/linerate/berlin/gateways/$1" | grep -q version; }
for n in 0 1; do wait_for 10 "gateway $n to have its lease" lease_of $n; done
expect "gateways" "0 1" "$(gw g1 "$FLEET" status --json | jq -r '[.gateways[].gateway] | join(" ")')"
fleet g1 drain 1
expect "draining" true "$(gw g2 "$FLEET" status --json | jq '.gateways[1].draining')"
fleet g1 undrain 1
fleet g1 leave 1 || fail "leave: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
ended() { ! kill -0 "${SERVICE[g2]}"; }
wait_for 10 "the service of g2 to end" ended
said g2 "was removed from the fleet" || fail "it was not said why: $(tail -n 2 "$SCENARIO_LOGS/g2.log")"
fleet g2 leave || fail "leave: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
! in_file g2 Fleet || fail "the file of g2 still names the fleet"
expect "gateways" 0 "$(gw g1 "$FLEET" status --json | jq -r '[.gateways[].gateway] | join(" ")')"
