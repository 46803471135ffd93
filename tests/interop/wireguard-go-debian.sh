#!/usr/bin/env bash
# timeout: 120
# A tunnel with the distribution's wireguard-go.
source "$(dirname "$0")/lib.sh"

their_daemon "$(type -P wireguard-go || echo wireguard-go)" -f
interop
