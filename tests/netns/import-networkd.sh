#!/usr/bin/env bash
# timeout: 180
# A tunnel of systemd-networkd is imported with its drop-in and its key file; clients' old files work.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
sample networkd
import "$WORK/networkd"
clients_work 10.30.0.1 "203.0.113.9 2001:db8:9::9" "$SAMPLES"/networkd/clients/*.conf
server_goes
