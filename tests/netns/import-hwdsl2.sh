#!/usr/bin/env bash
# timeout: 180
# The server of hwdsl2's wireguard-install is imported once its own NAT is gone; clients' old files work.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
sample hwdsl2
cp -r "$SAMPLES"/hwdsl2/host/etc/. /etc/
refused_import "systemctl disable --now wg-iptables.service" "$WORK/hwdsl2"
[[ ! -e /etc/wireguard/wg0.conf ]] || fail "it was written all the same"
rm /etc/systemd/system/wg-iptables.service
refused_import "sed -i .* /etc/rc.local" "$WORK/hwdsl2"
sed -i "/^systemctl restart wg-iptables.service/d" /etc/rc.local
import "$WORK/hwdsl2"
clients_work 10.7.0.1 "203.0.113.9 2001:db8:9::9" "$SAMPLES"/hwdsl2/clients/*.conf
server_goes
