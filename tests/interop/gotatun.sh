#!/usr/bin/env bash
# timeout: 120
# A tunnel with gotatun.
source "$(dirname "$0")/lib.sh"

their_daemon "$PEERS/gotatun" -f -v debug --disable-drop-privileges
# gotatun 0.10 may end itself when its port is changed while packets arrive ("channel closed").
CHANGES_PORT=no
interop
