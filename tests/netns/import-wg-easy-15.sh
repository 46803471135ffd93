#!/usr/bin/env bash
# timeout: 180
# The server of wg-easy 15 is imported from its database and the log beside it; clients' old files work, and the one that was disabled stays out.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
need sqlite3
sample wg-easy-15
import "$WORK/wg-easy-15"
clients_work 10.8.0.1 "203.0.113.9 2001:db8:9::9" "$SAMPLES"/wg-easy-15/clients/{alice,late}.conf
client_is_refused 10.8.0.1 "$SAMPLES/wg-easy-15/clients/old-laptop.conf"
# Bob has only some networks in the tunnel.
clients_work_split() {
  client_up "$SAMPLES/wg-easy-15/clients/bobs-phone.conf"
  pings h2 10.8.0.1
  client_down
}
clients_work_split
server_goes
# Without the log the last change is missing.
mkdir "$WORK/alone"
cp "$WORK/wg-easy-15"/wg-easy.db "$WORK/alone"
# Its columns for AmneziaWG have values, and only its file says whether they count.
refused_import "name the folder with both" "$WORK/alone" --name wg9
cp "$WORK/wg-easy-15"/wg0.conf "$WORK/alone"
import "$WORK/alone" --name wg9 --dry-run
expect "clients without the log" 0 "$(grep -c "^  late" "$WORK/said" || true)"
chmod 700 "$WORK/alone" && ln -sf /etc/shadow "$WORK/alone/wg0.conf"
refused_import "is a link out of" "$WORK/alone" --name wg9
