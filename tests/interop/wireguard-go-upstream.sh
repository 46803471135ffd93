#!/usr/bin/env bash
# timeout: 120
# A tunnel with the latest wireguard-go of its authors.
source "$(dirname "$0")/lib.sh"

their_daemon "$PEERS/wireguard" -f
interop
