#!/usr/bin/env bash
# timeout: 180
# A tunnel of NetworkManager, which does not forward, is imported; clients' old files reach the server.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
sample networkmanager
import "$WORK/networkmanager"
clients_work 10.40.0.1 "" "$SAMPLES"/networkmanager/clients/*.conf
server_goes
