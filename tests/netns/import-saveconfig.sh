#!/usr/bin/env bash
# timeout: 180
# A server of the original wg-quick with SaveConfig: the clients that had connected when it went down have an Endpoint in
# its file. After the import they are clients and can connect from other addresses, and the file has no Endpoint of theirs, not
# even after `save`; the other site is unchanged.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"
need jq
has_original || skip "wg-quick or wireguard-go is not installed"

import_hosts
key server ann bob carol site
(umask 077 && cat >/etc/wireguard/wg0.conf) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/server.key")
Address = 10.8.0.1/24
ListenPort = 51820
SaveConfig = true
[Peer]
PublicKey = $(public ann)
AllowedIPs = 10.8.0.2/32
[Peer]
PublicKey = $(public bob)
AllowedIPs = 10.8.0.3/32
[Peer]
PublicKey = $(public carol)
AllowedIPs = 10.8.0.4/32
[Peer]
PublicKey = $(public site)
AllowedIPs = 10.8.0.5/32, 192.168.5.0/24
Endpoint = 203.0.113.9:51820
CONF
file_of() { # NAME NUMBER : the client's file
  (umask 077 && cat >"$WORK/$1.conf") <<CONF
[Interface]
PrivateKey = $(cat "$WORK/$1.key")
Address = 10.8.0.$2/32
[Peer]
PublicKey = $(public server)
AllowedIPs = 10.8.0.1/32
Endpoint = 198.51.100.7:51820
CONF
}
file_of ann 2
file_of bob 3
endpoints() { grep -c ^Endpoint /etc/wireguard/wg0.conf || true; }

good original up wg0
for name in ann bob; do
  client_up "$WORK/$name.conf"
  pings h2 10.8.0.1
  client_down
done
good original down wg0
is_gone wg0
expect "endpoints that SaveConfig has left" 3 "$(endpoints)"

import /etc/wireguard/wg0.conf --endpoint 198.51.100.7
expect "clients" 3 "$(at h1 "$LINERATE" client list --json | jq length)"
expect "endpoints after the import" 1 "$(endpoints)"
good linerate up wg0
ip -n h2 addr del 192.0.2.2/24 dev e2
ip -n h2 addr add 192.0.2.77/24 dev e2
ip -n h2 route add default via 192.0.2.1
client_up "$WORK/ann.conf"
pings h2 10.8.0.1
good linerate save wg0
expect "endpoints after a save" 1 "$(endpoints)"
grep -q "^Endpoint = 203.0.113.9:51820" /etc/wireguard/wg0.conf || fail "the site has lost its endpoint"
client_down
good linerate down wg0
is_gone wg0
