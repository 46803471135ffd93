#!/usr/bin/env bash
# timeout: 180
# The server of wg-easy 14 is imported from its JSON and environment; clients' old files work, and the one that was disabled stays out.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
sample wg-easy-14
import "$WORK/wg-easy-14"
clients_work 10.8.0.1 203.0.113.9 "$SAMPLES"/wg-easy-14/clients/{alice,bobs-phone,juergens-phone}.conf
client_is_refused 10.8.0.1 "$SAMPLES/wg-easy-14/clients/old-laptop.conf"
server_goes
