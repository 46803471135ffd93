#!/usr/bin/env bash
# timeout: 1800
# --fix-firewall on a gateway with firewalld: it makes way, also after a reload of the tunnel, and `down` leaves firewalld as it was, also after kills.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"
source "$(dirname "$0")/firewalls.bash"
source "$(dirname "$0")/firewalld.bash"

firewalld_gateway
# Each takes seconds.
PARTS="3 7" RELOADS="5" fixed firewalld
loaded_as_before
