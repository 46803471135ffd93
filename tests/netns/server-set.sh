#!/usr/bin/env bash
# `server set`: the running tunnel follows and drops no session; a pool is only widened, and what is refused changes nothing.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
need jq nc

internet
server init --pool 10.7.4.0/24
at h1 "$LINERATE" client add laptop >"$WORK/laptop.conf" 2>>"$SCENARIO_LOGS/said.log"
grep -q "^Endpoint = 203.0.113.5:51820$" "$WORK/laptop.conf" || fail "the laptop's endpoint: $(grep Endpoint "$WORK/laptop.conf")"
expect "the clients" "1 1 2 254" "$(shown '.clients|[.total, .enabled, .used, .usable]|join(" ")' | tr -d '"')"

# The laptop's end, without its default routes.
sed '/^DNS/d; s/^\[Interface\]/&\nTable = off/' "$WORK/laptop.conf" >"$WORK/wg9.conf"
at laptop "$LINERATE" up "$WORK/wg9.conf" 2>>"$SCENARIO_LOGS/said.log"
ip -n laptop route add 10.7.0.0/16 dev wg9
pings laptop 10.7.4.1
handshake=$(at h1 wg show wg0 latest-handshakes)
daemon=$(daemon_of wg0)

say "the endpoint"
server set --endpoint vpn.example.com
said "what clients have to do" "files of laptop have the endpoint 203.0.113.5:51820: .* to vpn.example.com:51820"
in_file "endpoint" "^#! PublicEndpoint = vpn.example.com$"
expect "the endpoint that is shown" "vpn.example.com:51820" "$(shown .endpoint)"

say "the port: a client that the server sends to follows, and keeps its session; others need their file changed"
{ at h1 nc -u -l 4433 </dev/null >/dev/null 2>&1 || true; } &
wait_for 5 "the port to be taken" listens_udp h1 4433
cp /etc/wireguard/wg0.conf "$WORK/before.conf"
no_server set --port 4433
said "the port" "UDP port 4433 is in use"
cmp "$WORK/before.conf" /etc/wireguard/wg0.conf || fail "set --port was refused and has changed the file"
kill "$(pgrep -x nc)" # in the PID namespace of this scenario
wait_for 5 "the port to be free" port_closed h1 4433
server set --port 4433
said "the old port" "nothing listens on UDP port 51820 any more"
said "whose file" "files of laptop have the endpoint vpn.example.com:51820: .* to vpn.example.com:4433"
in_file "port" "^ListenPort = 4433$"
expect "the port that is shown" "4433 vpn.example.com:4433" "$(shown '|[.listenPort, .endpoint]|join(" ")' | tr -d '"')"
expect "the port that the daemon has" 4433 "$(at h1 wg show wg0 listen-port)"
wait_for 5 "the old port to be free" port_closed h1 51820
no_ping laptop 10.7.4.1
pings h1 10.7.4.2
pings laptop 10.7.4.1
expect "the laptop's endpoint" "203.0.113.5:4433" "$(at laptop wg show wg9 endpoints | cut -f 2)"
expect "the laptop's session" "$handshake" "$(at h1 wg show wg0 latest-handshakes)"
server set --endpoint vpn.example.com:443
server set --port 51820
said "what the router has to do" "keep sending to vpn.example.com:443: the router has to forward that to UDP port 51820"
in_file "endpoint" "^#! PublicEndpoint = vpn.example.com:443$"
at h1 "$LINERATE" server set --endpoint vpn.example.com:51820 --port 51820 --json >"$WORK/json"
expect "JSON" "true laptop" "$(jq -r '[.applied, .exportAgain[]] | join(" ")' "$WORK/json")"
server set --port 443
in_file "endpoint" "^#! PublicEndpoint = vpn.example.com:443$"
server set --port 51820
server set --endpoint vpn.example.com
pings h1 10.7.4.2

say "defaults of client files"
server set --dns 9.9.9.9,2620:fe::fe --client-mtu 1380 --client-keepalive 15
at h1 "$LINERATE" client add phone >"$WORK/phone.conf" 2>>"$SCENARIO_LOGS/said.log"
for line in "DNS = 9.9.9.9, 2620:fe::fe" "MTU = 1380" "PersistentKeepalive = 15" "Endpoint = vpn.example.com:51820"; do
  grep -qx -- "$line" "$WORK/phone.conf" || fail "the phone's file lacks '$line': $(grep -v Key "$WORK/phone.conf")"
done
server set --dns none --client-mtu none
grep -qE "Client(DNS|MTU)" /etc/wireguard/wg0.conf && fail "a default is still there"

say "ways in firewalls of others"
if type -P nft >/dev/null; then
  on h1 nft 'add table inet site; add chain inet site forward { type filter hook forward priority 0; policy drop; }'
  opened() { on h1 nft list chain inet site forward | grep -c 'comment "linerate wg0: ' || true; }
  server set --fix-firewall
  in_file "that they are opened" "^#! FixFirewall = true$"
  expect_at_least "ways that are opened" 1 "$(opened)"
  server set --fix-firewall=false
  grep -q FixFirewall /etc/wireguard/wg0.conf && fail "FixFirewall is still there"
  expect "ways that are open" 0 "$(opened)"
  at h1 "$LINERATE" reload --fix-firewall wg0
  expect_at_least "ways that an option has opened" 1 "$(opened)"
  at h1 "$LINERATE" server set --fix-firewall=false >"$WORK/said" 2>&1
  grep -q "says that already" "$WORK/said" && grep -q "stay open until the tunnel is taken down" "$WORK/said" ||
    fail "it is not said that they stay open: $(cat "$WORK/said")"
  expect_at_least "ways that stay open" 1 "$(opened)"
  on h1 nft delete table inet site
  expect "the daemon" "$daemon" "$(daemon_of wg0)"
fi

say "the pool"
cp /etc/wireguard/wg0.conf "$WORK/before.conf"
ip -n h1 route add 10.7.99.0/24 via 203.0.113.1
for refused in "--pool 10.7.0.0/16" "--pool 10.8.0.0/16" "--pool 10.7.4.0/25" "--client-mtu 7" "--dns 1.2.3" "--endpoint a:b"; do
  # shellcheck disable=SC2086 # two words
  no_server set $refused
  cmp "$WORK/before.conf" /etc/wireguard/wg0.conf || fail "set $refused was refused and has changed the file"
done
no_server set
ip -n h1 route delete 10.7.99.0/24
server set --pool 10.7.0.0/16
in_file "pool" "^#! Pool = 10\.7\.0\.0/16, fd"
in_file "address" "^Address = 10\.7\.4\.1/16, fd"
expect "the interface's address" "10.7.4.1/16" "$(ip -n h1 -4 -o addr show dev wg0 | awk '{ print $4 }')"
expect_at_least "addresses for clients" 60000 "$(shown .clients.usable)"
pings laptop 10.7.4.1
expect "the daemon" "$daemon" "$(daemon_of wg0)"
expect "the laptop's session" "$handshake" "$(at h1 wg show wg0 latest-handshakes | grep -v "$(printf '\t0$')")"

say "clients that are disabled count, too"
at h1 "$LINERATE" client disable laptop phone 2>>"$SCENARIO_LOGS/said.log"
no_server remove
said "what it takes" "2 clients, .*add --yes"
server remove --yes
