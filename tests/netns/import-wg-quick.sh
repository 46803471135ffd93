#!/usr/bin/env bash
# timeout: 180
# A plain file of wg-quick is imported with its clients' files, which still work; a command that is not understood is kept.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
sample wg-quick
import "$WORK/wg-quick"
expect "commands that are kept" 2 "$(grep -c "^Post.*DNAT" /etc/wireguard/wg0.conf)"
sed -i "/DNAT/d" /etc/wireguard/wg0.conf # needs iptables
clients_work 10.20.0.1 "203.0.113.9 2001:db8:9::9" "$SAMPLES"/wg-quick/clients/laptop.conf
client_up "$SAMPLES/wg-quick/clients/anns-phone.conf"
pings h2 10.20.0.1
pings h2 fd20:1::1
client_down
server_goes
