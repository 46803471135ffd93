#!/usr/bin/env bash
# timeout: 120
# A tunnel with boringtun.
source "$(dirname "$0")/lib.sh"

# Without the last option it keeps sending from its first address when that is removed.
their_daemon "$PEERS/boringtun-cli" -f -v debug --disable-drop-privileges --disable-connected-udp
interop
