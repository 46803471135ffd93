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
say "clients that were imported are clients"
expect "clients in the list" 3 "$(at h1 "$LINERATE" client list | grep -cE 'alice|bob.laptop|old_phone')"
at h1 "$LINERATE" client enable old_phone >"$WORK/said" 2>&1 || fail "client enable: $(cat "$WORK/said")"
client_up "$SAMPLES/pivpn/configs/old_phone.conf"
pings h2 10.6.0.1
client_down
server_goes
