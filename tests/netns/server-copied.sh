#!/usr/bin/env bash
# timeout: 180
# A server's file is copied from a host with the uplink eth0 to one with e1, has an address without a prefix length, and a command
# sets its key: each message names what is missing, its remedy works, and the server can be removed.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
need jq

internet
key server
file=/etc/wireguard/wg0.conf
(umask 077 && cat >$file) <<CONF
[Interface]
Address = 10.13.13.1
ListenPort = 51820
PostUp = wg set %i private-key $WORK/server.key
#! PublicEndpoint = 203.0.113.5
#! Gateway = eth0
#! Masquerade = ipv4
CONF

say "the key"
bad linerate client add laptop
said "how it is named" "PostUp sets it from $WORK/server.key: add .#! PrivateKeyFile = $WORK/server.key"
sed -i "s|^PostUp.*|#! PrivateKeyFile = $WORK/server.key|" $file

say "the network of the clients"
good linerate up wg0
said "the gateway" "no interface eth0.*default route is by e1: with .Gateway = auto"
bad linerate client add laptop
said "what makes one" "Address has no length.*server set --pool"
no_server set --pool 10.14.0.0/16
said "why not" "does not contain the server's own address, 10.13.13.1/32"
server set --pool 10.13.13.0/24
expect "the interface's address" "10.13.13.1/24" "$(ip -n h1 -4 -o addr show dev wg0 | awk '{ print $4 }')"

say "the gateway"
good linerate client add laptop --output "$WORK/wg9.conf"
said "what is missing" "no interface eth0, which $file names.*Gateway = auto"
sed -i "/^DNS/d" "$WORK/wg9.conf"
at laptop "$LINERATE" up "$WORK/wg9.conf" 2>>"$SCENARIO_LOGS/said.log"
pings laptop 10.13.13.1
no_ping laptop 198.51.100.2
sed -i "s/^#! Gateway.*/#! Gateway = auto/" $file
good linerate reload wg0
pings laptop 198.51.100.2
no_server set --pool fd00:13::1/64
said "why not" "write fd00:13::/64"
server set --pool fd00:13::/64
said "clients of the missing family" "present clients keep their addresses"
wait_for 5 "the interface's address of the other family" eval '[[ $(ip -n h1 -6 -o addr show dev wg0 scope global) == *fd00:13::1/64* ]]'
good linerate client add phone
said "its addresses" "added phone with 10.13.13.3, fd00:13::3"
pings laptop 198.51.100.2
say "client files name another host's address"
sed -i "s/^#! PublicEndpoint.*/#! PublicEndpoint = 203.0.113.9/" $file
good linerate client add tablet
said "the wrong address in client files" "client files name 203.0.113.9, and this host has 203.0.113.5.*server set --endpoint 203.0.113.5"
server set --endpoint 203.0.113.5
at laptop "$LINERATE" down "$WORK/wg9.conf" 2>>"$SCENARIO_LOGS/said.log"

say "removal without a record"
no_server remove
said "what it takes" "add --yes"
server remove --yes
is_gone wg0
[[ ! -e $file ]] || fail "the file is still there"
expect "what is left of it" "" "$(find /var/lib/linerate -name 'wg0*' 2>/dev/null)"
server init --no-start
