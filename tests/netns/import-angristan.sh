#!/usr/bin/env bash
# timeout: 180
# The server of angristan's wireguard-install is imported in place: the file is replaced, the old one kept, clients' old files work.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
cp "$SAMPLES"/angristan/{wg0.conf,params} /etc/wireguard
cp "$SAMPLES"/angristan/wg0.conf "$WORK/before"
import /etc/wireguard --dry-run
cmp /etc/wireguard/wg0.conf "$WORK/before" || fail "--dry-run changed the file"
# While the old tool runs the tunnel:
ip -n h1 link add wg0 type veth peer name wg0-end
refused_import "wg0 is up" /etc/wireguard
ip -n h1 link del wg0
import /etc/wireguard
cmp /etc/wireguard/wg0.conf.before-import "$WORK/before" || fail "the old file is not kept"
expect "mode of the file" 600 "$(stat -c %a /etc/wireguard/wg0.conf)"
expect "hooks in the file" 0 "$(grep -c "^P[ro][es]t*Up" /etc/wireguard/wg0.conf || true)"
clients_work 10.66.66.1 "203.0.113.9 2001:db8:9::9" "$SAMPLES"/angristan/clients/*.conf
refused_import "already" /etc/wireguard
server_goes
