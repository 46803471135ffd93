#!/usr/bin/env bash
# heavy: mixed traffic through two tunnels
# timeout: 300
# The soak's events, every one once: traffic is back in time, errors are those that the events explain, nothing ends.
exec "$(dirname "$0")/../soak/run" --once
