#!/usr/bin/env bash
# timeout: 120
# doctor tells of tunnels that contradict each other or their host, of names that have moved, and of clocks; --bundle has
# no secret.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/doctor.bash"

hosts_with_files
preshared both
on h2 wg set wg2 peer "$(public h1)" preshared-key "$WORK/both.psk"
ENDPOINT=192.0.2.2:50002
file() { tunnel_file wg1 "$@" && echo "PresharedKey = $(cat "$WORK/both.psk")" >>/etc/wireguard/wg1.conf; }
up() { good linerate up wg1; }
down() { good linerate down wg1 && is_gone wg1; }

file 10.9.0.2/32,fd09::2/128
up
healthy "a tunnel from a file" h1 wg1

say "what a bug report has, and what not"
mkdir -p "$WORK/bundle"
sed -i "s|^Address|PostUp = : secret-of-a-hook\n# PrivateKey = $(cat "$WORK/h2.key")\n&|" /etc/wireguard/wg1.conf
# A host's name of its own, long enough never to be a part of a key by chance.
HOST_NAME=name-of-the-host-under-report
in_named_host() { nsenter --net=/run/netns/h1 unshare --uts bash -c 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"' "$HOST_NAME" "$@"; }
in_named_host "$LINERATE" doctor wg1 --bundle "$WORK/bundle.tar.gz" || fail "the archive: doctor ended with $?"
expect "the mode of the archive" 600 "$(stat -c %a "$WORK/bundle.tar.gz")"
tar -xzf "$WORK/bundle.tar.gz" -C "$WORK/bundle"
for secret in "$(cat "$WORK/h1.key")" "$(cat "$WORK/h2.key")" "$(cat "$WORK/both.psk")" secret-of-a-hook "$HOST_NAME"; do
  for form in "$secret" "$(printf '%s' "$secret" | hex 2>/dev/null || echo none)"; do
    [[ -z $form ]] || ! grep -rqF -- "$form" "$WORK/bundle" || fail "the archive has the secret $form: $(grep -rlF -- "$form" "$WORK/bundle")"
  done
done
say "no secret is in the archive"
for name in findings.json status.json stats.json wg1.conf network/links network/routes versions; do
  expect_at_least "bytes of $name" 1 "$(stat -c %s "$WORK"/bundle/*/"$name")"
done
grep -q "AllowedIPs = 10.9.0.2/32,fd09::2/128" "$WORK"/bundle/*/wg1.conf || fail "the file in the archive lacks what is no secret"
expect_failure "an archive in a folder that is not there" at h1 "$LINERATE" doctor wg1 --bundle "$WORK/nowhere/x.tar.gz"

say "states"
ip -n h1 link set wg1 down
finds "an interface that is down" h1 wg1 interface-down
down
daemon h1 wg4
on h1 wg set wg4 peer "$(public h2)" allowed-ips 10.9.0.2/32 endpoint 192.0.2.2:50002
ip -n h1 link set wg4 up
finds "a tunnel without a key" h1 wg4 no-private-key
stop_daemon wg4

say "ports"
file 10.9.0.2/32 "ListenPort = 50007"
up
ip -n h1 link set wg1 down
wait_for 5 "wg1 to close its port" port_closed h1 50007
at h1 nc -lu 50007 >/dev/null 2>&1 &
holder=$!
wait_for 5 "nc to listen" listens_udp h1 50007
ip -n h1 link set wg1 up
not_listening() { at h1 "$LINERATE" status wg1 --json | grep -q '"notListening": true'; }
wait_for 5 "wg1 to miss its port" not_listening
finds "a port of another program" h1 wg1 port-in-use
tells "port 50007 is held by nc"
kill $holder
ip -n h1 link set wg1 down
daemon h1 wg4
key four
on h1 wg set wg4 private-key "$WORK/four.key" listen-port 50007
ip -n h1 link set wg4 up
wait_for 5 "wg4 to open the port" listens_udp h1 50007
ip -n h1 link set wg1 up
wait_for 5 "wg1 to miss its port" not_listening
finds "a port of another tunnel" h1 wg1 two-tunnels-one-port
stop_daemon wg4
down

say "addresses"
file 10.9.0.2/32,fd09::2/128
up
ip -n h1 addr add 10.9.0.1/32 dev lan1
finds "an address that another interface has as well" h1 wg1 address-conflict
ip -n h1 addr del 10.9.0.1/32 dev lan1
healthy "an address of its own" h1 wg1
daemon h1 wg4
on h1 wg set wg4 private-key "$WORK/four.key" peer "$(public h2)" allowed-ips 10.9.0.2/32
wg_address h1 wg4 10.44.0.1/24
finds "an allowed IP of two tunnels" h1 wg1 allowed-ips-in-two-tunnels
stop_daemon wg4
cat >>/etc/wireguard/wg1.conf <<CONF
[Peer]
PublicKey = $(public four)
AllowedIPs = 10.9.0.2/32
CONF
finds "an allowed IP of two peers" h1 wg1 allowed-ips-in-two-peers
down
file 10.9.0.2/32,fd09::2/128
up
on h1 sysctl -qw net.ipv6.conf.wg1.disable_ipv6=1
finds "IPv6 that is disabled" h1 wg1 ipv6-disabled
down
file 0.0.0.0/0,::/0
up
pings h1 10.9.0.2
finds "everything through a tunnel with local IPv6 addresses" h1 wg1 ipv6-hardly-used
down
file 10.9.0.2/32 "PostUp = false" "#! OnHookError = warn"
turn linerate up wg1
finds "a command that failed" h1 wg1 hook-failed
down

say "names"
own_file /etc/hosts <<<"192.0.2.2 peer.example"
ENDPOINT=peer.example:50002
file 10.9.0.2/32
up
healthy "an endpoint that is a name" h1 wg1
on h1 wg set wg1 peer "$(public h2)" endpoint 192.0.2.99:50002
pkill -f "linerate supervise wg1\$" || true
on h1 wg show wg1 dump >/dev/null
forget h1 wg1
on h1 wg set wg1 peer "$(public h2)" endpoint 192.0.2.99:50002 preshared-key "$WORK/both.psk" allowed-ips 10.9.0.2/32
finds "a name that has moved" h1 wg1 endpoint-name-stale
tells "wg set wg1 peer .* endpoint 192.0.2.2:50002"
down

ENDPOINT=nowhere.example:50002
file 10.9.0.2/32
up
finds "a name without an address" h1 wg1 endpoint-name-unresolved
echo "nameserver 10.9.0.2" >"$WORK/etc/resolv.conf"
finds "a name server inside of the tunnel" h1 wg1 endpoint-name-through-tunnel
: >"$WORK/etc/resolv.conf"
down

say "one of two peers does not answer"
ENDPOINT=192.0.2.2:50002
file 10.9.0.2/32
printf '[Peer]\nPublicKey = %s\nAllowedIPs = 10.9.0.44/32\nEndpoint = 192.0.2.99:5\n' "$(public four)" >>/etc/wireguard/wg1.conf
up
finds "a peer that is away" h1 wg1 no-handshake-no-answer
down

say "a daemon that died"
ENDPOINT=192.0.2.2:50002
file 10.9.0.2/32
up
kill_daemon
turn linerate doctor wg1
doctor h1 wg1
expect "what doctor finds" daemon-dead "$FOUND"
down
