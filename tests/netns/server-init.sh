#!/usr/bin/env bash
# timeout: 120
# A server from one command: what it finds and chooses, what it refuses, and that removing it leaves the host as it was.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
need jq nc

internet
remember_all

say "with nothing but the command"
server init --dry-run
said "the file" "#! PublicEndpoint = 203.0.113.5"
said "the plan" "interface wg0"
grep -q "PrivateKey = [^(]" "$WORK/said" && fail "a dry run prints a key"
all_as_before "a dry run"
server init
said "the endpoint" "203.0.113.5:51820"
said "how it starts at boot" "nothing starts the tunnel at boot"
expect "mode of the file" 600 "$(stat -c %a /etc/wireguard/wg0.conf)"
expect "port" 51820 "$(is_up)"
in_file "addresses" "^Address = 10\.[0-9]+\.[0-9]+\.1/24, fd[0-9a-f:]+::1/64$"
in_file "masquerade" "^#! Masquerade = both$"
wg-quick strip wg0 >"$WORK/stripped" || fail "the original does not take the file"
grep -q "^ListenPort = 51820" "$WORK/stripped" || fail "the original reads something else: $(cat "$WORK/stripped")"
expect "the server that is shown" "203.0.113.5:51820 true made" "$(shown '|[.endpoint, .running, .made]|join(" ")' | tr -d '"')"
expect "the key" "$(grep PrivateKey /etc/wireguard/wg0.conf | sed 's/.*= //' | wg pubkey)" "$(shown .publicKey)"
prefix=$(sed -n 's/^Address.* \(fd[0-9a-f]*:[0-9a-f]*:[0-9a-f]*\):.*/\1/p' /etc/wireguard/wg0.conf)

say "a second one: it takes other networks, another port, and the same local prefix"
no_server init
said "the server that is there" "wg0 is a server already"
server init wg1
grep -q "^ListenPort = 51821" /etc/wireguard/wg1.conf || fail "wg1 has no port of its own"
grep -q "^Address = .*, $prefix:1::1/64" /etc/wireguard/wg1.conf || fail "wg1 has no network of $prefix: $(grep Address /etc/wireguard/wg1.conf)"
server show
said "both" "^wg0 is up"
said "both" "^wg1 is up"
no_server remove
said "which one" "wg0, wg1"
server remove wg1
is_gone wg1
expect "the first" 51820 "$(is_up)"
server remove
is_gone wg0
all_as_before "remove"

say "what is there stays"
install -m 600 /dev/stdin /etc/wireguard/wg0.conf <<<"[Interface]"
remember_all
no_server init
said "how to take it over" "linerate server import /etc/wireguard/wg0.conf"
all_as_before "a file that is there"
no_server remove wg0
said "nothing to remove" "not the file of a server"
rm /etc/wireguard/wg0.conf
ip -n h1 link add wg0 type veth peer name other
no_server init
said "a link" "wg0 exists already"
ip -n h1 link delete wg0
remember_all

say "what collides is refused, or gone around"
{ at h1 nc -u -l 51820 </dev/null >/dev/null 2>&1 || true; } &
wait_for 5 "the port to be taken" listens_udp h1 51820
no_server init --port 51820
said "the port" "UDP port 51820 is in use"
server init
said "another port" "port 51821"
expect "port" 51821 "$(is_up)"
server remove
kill "$(pgrep -x nc)" # in the PID namespace of this scenario
wait_for 5 "the port to be free" port_closed h1 51820
ip -n h1 route add 10.9.0.0/16 via 203.0.113.1
no_server init --pool 10.9.8.0/24
said "the route" "10.9.0.0/16"
no_server init --pool 10.7.0.1/24
said "host bits" "write 10.7.0.0/24"
ip -n h1 route add 10.0.0.0/8 via 203.0.113.1
no_server init
said "no network is left" "--pool"
ip -n h1 route delete 10.0.0.0/8
ip -n h1 route delete 10.9.0.0/16
no_server init --prefix6 2001:db8:1::/64
said "the uplink's own network" "not routed here"
no_server init --client-mtu 7
said "an MTU that is none" "68 to 65535"
all_as_before "refusals"

say "a failure on the way leaves nothing: no daemon can be started"
WG_QUICK_USERSPACE_IMPLEMENTATION=/nowhere no_server init
all_as_before "a failure"

say "a prefix that is routed here needs no NAT"
ip -n h1 -6 route add unreachable 2001:db8:7::/56
server init
in_file "addresses" "^Address = .*, 2001:db8:7::1/64$"
in_file "masquerade" "^#! Masquerade = ipv4$"
server remove
ip -n h1 -6 route delete unreachable 2001:db8:7::/56
server init --prefix6 2001:db8:8::/64
in_file "addresses" "^Address = .*, 2001:db8:8::1/64$"
in_file "masquerade" "^#! Masquerade = ipv4$"
server remove
all_as_before "routed prefixes"

say "answers from a file; options come first; a mistake in it is one"
cat >"$WORK/answers" <<'JSON'
{ "endpoint": "vpn.example.com", "port": 443, "pool": "10.7.0.0/16", "ipv6": false, "dns": ["9.9.9.9"], "clientMtu": 1380 }
JSON
at h1 "$LINERATE" server init --answers "$WORK/answers" --port 4433 --json >"$WORK/json"
expect "JSON" "vpn.example.com:4433 10.7.0.1/16 true" "$(jq -r '[.endpoint, .addresses[], .running] | join(" ")' "$WORK/json")"
in_file "DNS" "^#! ClientDNS = 9.9.9.9$"
in_file "MTU" "^#! ClientMTU = 1380$"
server remove
echo '{ "endpiont": "vpn.example.com" }' >"$WORK/answers"
no_server init --answers "$WORK/answers"
said "the mistake" "endpiont"
echo '{ "endpoint": "vpn example" }' >"$WORK/answers"
no_server init --answers "$WORK/answers"
said "the mistake" "endpoint is"
all_as_before "answers"

say "without a default route for IPv6, and behind a NAT"
ip -n h1 -6 route delete default
server init --no-start
said "not up" "not up"
expect "addresses" 2 "$(shown '.addresses|length')"
expect "running" false "$(shown .running)"
server remove
ip -n h1 -6 route add default via 2001:db8:1::1
ip -n h1 address add 192.168.1.5/24 dev e1
ip -n h1 address delete 203.0.113.5/24 dev e1
ip -n h1 route replace default via 192.168.1.1 dev e1
remember_all
no_server init
said "the NAT" "192.168.1.5 is not public"
said "what to do" "--endpoint"
all_as_before "an unknown endpoint"
server init --endpoint home.example.com:443
said "what the router has to do" "forward UDP port 443 to port 51820"
in_file "endpoint" "^#! PublicEndpoint = home.example.com:443$"
server remove
all_as_before "behind a NAT"

say "a server with clients goes only on request"
server init --endpoint 203.0.113.5
printf '\n[Peer]\nPublicKey = %s\nAllowedIPs = 10.255.255.254/32\n' "$(wg genkey | wg pubkey)" >>/etc/wireguard/wg0.conf
no_server remove
said "what it takes" "add --yes"
expect "it is still up" 51820 "$(is_up)"
server remove --yes
is_gone wg0
all_as_before "a server with clients"
