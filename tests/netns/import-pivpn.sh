#!/usr/bin/env bash
# timeout: 180
# The server of PiVPN is imported; clients' old files work, and the one that was disabled stays out.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
sample pivpn
import "$WORK/pivpn"
clients_work 10.6.0.1 "203.0.113.9 2001:db8:9::9" "$SAMPLES"/pivpn/configs/{alice,bob.laptop}.conf
client_is_refused 10.6.0.1 "$SAMPLES/pivpn/configs/old_phone.conf"
server_goes
