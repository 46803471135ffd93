#!/usr/bin/env bash
# timeout: 240
# linerate-fleet@ under a real systemd, confined as its unit says, beside linerate@: it follows the store into daemon and file, has a
# mesh with another gateway, passes on what comes for the other's sessions and takes what is for its own, is started again,
# and leaves nothing.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
need systemctl
source "$(dirname "$0")/systemd.bash"
unset LINERATE_USER WG_QUICK_BACKEND

# h1 (10.0.0.21) has systemd, g2 (10.0.0.11) is as in other scenarios, and the laptop (10.0.0.50) is a client.
mount -t tmpfs -o mode=0755 tmpfs /var/lib
gateways g2
host h1 laptop
for name in h1 laptop; do
  cable $name e0 s "p$name"
  ip -n s link set "p$name" master br0
done
address h1 e0 10.0.0.21/24
address laptop e0 10.0.0.50/24
for name in h1 g2; do
  address $name lo 192.0.2.100/32
  ip -n $name route add 10.0.0.50/32 dev e0 src 192.0.2.100
done
address_is_at() { ip -n laptop route replace 192.0.2.100/32 via "$1"; } # ADDRESS
address_is_at 10.0.0.21
etcd_up
key fleet
tunnel_file g2
(umask 077 && gw g2 cat /etc/wireguard/wg0.conf >/etc/wireguard/wg0.conf)

install -D -m 644 /dev/stdin /etc/systemd/system/linerate-fleet@berlin.service.d/log.conf <<<"[Service]
StandardError=append:$SCENARIO_LOGS/service.log"
switch_on
unit=linerate-fleet@berlin.service
status() { jq -r "$1" /run/linerate/fleet/berlin/status.json; } # FILTER, of h1
is() { [[ $(status "$1") == "$2" ]]; }                           # FILTER VALUE
told() { { service status "$unit" linerate@wg0 --no-pager; tail -n 20 "$SCENARIO_LOGS/systemd.log"; } 2>&1; }
on_host() { # COMMAND...
  inside "$@" >"$WORK/said" 2>&1 || fail "$*: $(tail -n 5 "$WORK/said" | tr '\n' ' '); $(told)"
}
is_gateway() { # WHEN
  wait_for 20 "$1: the store: $(told)" is .store_is_seen true
  wait_for 20 "$1: the daemon to be told" is .daemon_is_told true
  wait_for 20 "$1: both gateways to be alive" is '[.gateway.gateways[] | select(.is_alive)] | length' 2
  wait_for 20 "$1: h1 to initiate for others" is .gateway.initiates true
  say "$1: a gateway of two"
}
peer_here() { inside wg show wg0 peers | grep -qxF -- "$1"; } # KEY

say "as docs/fleet.md says"
on_host linerate fleet init berlin wg0 --store $STORE --address 192.0.2.100:51820 --mesh-endpoint 10.0.0.21:51821
on_host systemctl enable --now linerate@wg0 linerate-fleet@berlin
gw g2 nice -n -15 "$LINERATE" up wg0 >>"$SCENARIO_LOGS/up.log" 2>&1 || fail "up on g2: $(tail -n 3 "$SCENARIO_LOGS/up.log")"
fleet g2 join berlin wg0 --store $STORE --mesh-endpoint 10.0.0.11:51821 || fail "join: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
service_up g2
is_gateway "enabled"
expect "interfaces of h1" "e0 lm-wg0 lo wg0" "$(ip -n h1 -j link | jq -r 'map(.ifname) | sort | join(" ")')"

say "what it is"
pid=$(property $unit MainPID)
of_process() { inside sed -n "s/^$1:\t//p" "/proc/$pid/status"; }
expect "no new privileges" 1 "$(of_process NoNewPrivs)"
expect "its capabilities, those of its unit" 00000000000075eb "$(of_process CapEff)"
note "systemd-analyze security: $(inside systemd-analyze security --no-pager $unit | sed -n 's/^.*Overall exposure level[^:]*: //p')"

say "clients"
on_host linerate client add laptop
cp "$WORK/said" "$WORK/laptop.conf"
wait_for 10 "the laptop on g2" has_peer g2 "$(client_key laptop)"
client_add g2 phone || fail "client add: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
wait_for 10 "the phone on h1" peer_here "$(client_key phone)"
wait_for 10 "the phone in the file of h1" grep -q '^# Name = phone' /etc/wireguard/wg0.conf

say "sessions"
sed -n 's/^PrivateKey = //p' "$WORK/laptop.conf" >"$WORK/laptop.key"
sed -n 's/^PresharedKey = //p' "$WORK/laptop.conf" >"$WORK/laptop.psk"
daemon laptop wgl
client_set laptop laptop wgl
wg_address laptop wgl "$(client_address laptop | sed 's,/.*,,')/24"
# It has to bring a cookie first, as no gateway knows it.
answers_laptop() { on laptop ping -n -q -c 1 -W 1 10.9.0.1; }
wait_for 30 "an answer to the laptop" answers_laptop
wait_for 10 "h1 to have the laptop" is '.gateway.gateways["0"].peers' 1
received() { inside wg show wg0 transfer | awk -v key="$(client_key laptop)" '$1 == key { print $2 }'; }
# What g2 gets for it comes to h1 through the mesh, and from there to its daemon by a raw socket.
before=$(received)
address_is_at 10.0.0.11
pings laptop 10.9.0.1
expect_at_least "bytes that h1 had by g2" 300 $(($(received) - before))
address_is_at 10.0.0.21
pings laptop 10.9.0.1

say "killed, and started again"
kill -KILL "$(pgrep -of '^/usr/bin/linerate-fleet run')"
another() { [[ $(property $unit MainPID) != "$pid" && $(property $unit ActiveState) == active ]]; }
wait_for 20 "another process" another
is_gateway "after a kill"
pings laptop 10.9.0.1
on_host systemctl restart $unit
is_gateway "after a restart"
pings laptop 10.9.0.1
on_host systemctl restart linerate@wg0
is_gateway "after a restart of the tunnel"
wait_for 30 "an answer to the laptop" answers_laptop
client_add g2 lamp || fail "client add: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
wait_for 10 "another client on h1" peer_here "$(client_key lamp)"
wait_for 10 "another client in the file of h1" grep -q '^# Name = lamp' /etc/wireguard/wg0.conf

say "stopped"
from=$(now_ms)
on_host systemctl stop $unit
note "stopped after $(($(now_ms) - from)) ms"
expect "how it ended" "success inactive" "$(property $unit Result) $(property $unit ActiveState)"
expect "interfaces of h1" "e0 lo wg0" "$(ip -n h1 -j link | jq -r 'map(.ifname) | sort | join(" ")')"
expect "what is left of it in /run" "" "$(find /run/linerate /run/wireguard -name '*lm-wg0*' -not -name '*lock' -not -name '*.supervisor')"
expect "its processes" "" "$(pgrep -fa '^/usr/bin/linerate-fleet' || true)"
expect "units that failed" "" "$(service list-units --state=failed --no-legend --plain)"
pings laptop 10.9.0.1
on_host systemctl stop linerate@wg0
