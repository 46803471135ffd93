#!/usr/bin/env bash
# timeout: 240
# Clients of servers that panels and people have set up reach the same before and after an import, and so does a forwarded port.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"
source "$(dirname "$0")/import-matrix.bash"

need sqlite3
matrix_hosts
same_matrix pivpn 3 46 configs/{alice,bob.laptop}.conf
same_matrix pivpn-2023 3 46 configs/{alice,bob.laptop}.conf
same_matrix wg-easy-14 5 4 clients/{alice,bobs-phone}.conf
same_matrix wg-easy-15 4 46 clients/{alice,late}.conf
same_matrix wireguard-ui 4 4 clients/{alice,late}.conf
same_matrix wireguard-ui-2023 4 4 clients/{alice,late}.conf
same_matrix wgdashboard 4 4 clients/{alice,bobs-phone}.conf
# The phone has only the tunnel's networks in its file, and the rest goes its usual way. A port leads to the laptop.
same_matrix wg-quick 2 46 clients/{laptop,anns-phone}.conf "h2 server:46 h2 other:46 h2 lan:46 h2 internet:46 \
h3 server:46 h3 other:46 h3 lan:no h3 internet:4 net port:4 lan h2:46 lan h3:no"
