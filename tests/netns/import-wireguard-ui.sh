#!/usr/bin/env bash
# timeout: 180
# The server of wireguard-ui is imported; clients' old files work, and the one that was disabled stays out.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
sample wireguard-ui
import "$WORK/wireguard-ui/db"
clients_work 10.252.1.0 203.0.113.9 "$SAMPLES"/wireguard-ui/clients/alice.conf
client_is_refused 10.252.1.0 "$SAMPLES/wireguard-ui/clients/old.conf"
server_goes
