#!/usr/bin/env bash
# timeout: 180
# The server of WGDashboard is imported from its file and its databases; clients' old files work, and the one that was disabled stays out.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
need sqlite3
sample wgdashboard
import "$WORK/wgdashboard"
clients_work 10.0.0.1 203.0.113.9 "$SAMPLES"/wgdashboard/clients/{alice,bobs-phone}.conf
client_is_refused 10.0.0.1 "$SAMPLES/wgdashboard/clients/old.conf"
server_goes
