#!/usr/bin/env bash
# timeout: 120
# The daemon of a gateway has died, and another tunnel has its name: the fleet does not touch that one, says that the tunnel does not follow its file, and has it follow once it is there again.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
unset LINERATE_USER WG_QUICK_BACKEND

gateways g1 g2
etcd_up
key fleet other
for g in g1 g2; do
  tunnel_file $g
  gw $g "$LINERATE" up wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || fail "up on $g: $(tail -n 3 "$SCENARIO_LOGS/up.log")"
done
fleet g1 init berlin wg0 --store $STORE --address 192.0.2.100:51820 --mesh-endpoint 10.0.0.11:51821 ||
  fail "init: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
daemon_on() { # HOST : of wg0
  local pid
  for pid in $(pgrep -f "linerated wg0\$"); do
    [[ $(stat -Lc %i "/proc/$pid/ns/net") != "$(stat -Lc %i "/run/netns/$1")" ]] || echo "$pid"
  done
}
no_wg0() { ! ip -n "$1" link show wg0; }
replace() { # HOST : its daemon dies, and another one with another key has its name
  local pid
  for pid in $(daemon_on "$1"); do kill -KILL "$pid"; done
  wait_for 10 "wg0 on $1 to go" no_wg0 "$1"
  gw "$1" "$TUNNEL_DAEMON" wg0 >>"$SCENARIO_LOGS/up.log" 2>&1
  wait_for 10 "the other daemon on $1" gw "$1" wg show wg0
  gw "$1" wg set wg0 private-key "$WORK/other.key" peer "$(public fleet)"
  gw "$1" wg showconf wg0 >"$WORK/theirs"
}
untouched() { # WHEN HOST
  diff "$WORK/theirs" <(gw "$2" wg showconf wg0) >/dev/null || fail "$1: the other tunnel has changed"
}
other="wg0 that runs has another private key"

say "join beside another tunnel of that name: it is done, and the command says what is not"
replace g2
! fleet g2 join berlin wg0 --store $STORE --mesh-endpoint 10.0.0.12:51821 || fail "join succeeded"
grep -q "$other" "$SCENARIO_LOGS/fleet.log" || fail "join does not say why: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
in_file g2 '^#! Fleet = berlin' || fail "the file of g2 does not name the fleet"
untouched "join" g2

say "a client, with the service of g2 beside another tunnel"
for g in g1 g2; do service_up $g; done
for g in g1 g2; do wait_for 10 "the service of $g to follow" is_said $g .store_is_seen true; done
wait_for 10 "the daemon of g1 to be told" is_said g1 .daemon_is_told true
client_add g1 first || fail "client add: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
wait_for 10 "the file of g2" in_file g2 'Name = first'
wait_for 10 "the service of g2 to say that its tunnel does not follow" said g2 "does not follow its file yet: .*$other"
wait_for 10 "the service of g2 to say that it tells this tunnel nothing" said g2 "$other than the fleet"
expect "whether the daemon of g2 is told" false "$(of_service g2 .daemon_is_told)"
untouched "the service" g2

say "the tunnel is there again"
ip -n g2 link delete wg0
wait_for 10 "wg0 on g2 to go" no_wg0 g2
gw g2 "$LINERATE" down wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || true
gw g2 "$LINERATE" up wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || fail "up on g2: $(tail -n 3 "$SCENARIO_LOGS/up.log")"
wait_for 10 "the daemon of g2 to be told" is_said g2 .daemon_is_told true
wait_for 10 "the client on g2" has_peer g2 "$(client_key first)"
client_add g1 second || fail "client add: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
wait_for 10 "the second client on g2" has_peer g2 "$(client_key second)"
for g in g1 g2; do service_down $g; done
