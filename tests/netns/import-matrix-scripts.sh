#!/usr/bin/env bash
# timeout: 240
# Clients of servers that scripts have set up reach the same before and after an import: the server, each other, the LAN and the internet.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"
source "$(dirname "$0")/import-matrix.bash"

matrix_hosts
same_matrix angristan 3 46 clients/wg0-client-{alice,bob_phone}.conf
same_matrix angristan-2022 3 46 clients/wg0-client-{alice,late-one}.conf
same_matrix hwdsl2 3 46 clients/{alice,bob_phone}.conf
same_matrix hwdsl2-2024 3 46 clients/{alice,late-one}.conf
same_matrix hwdsl2-nyr 3 46 clients/{alice,bob_s_phone}.conf
same_matrix hwdsl2-nyr-2024 3 46 clients/{alice,late-one}.conf
same_matrix wg-quick-easy 3 46 clients/wgclient_{alice,bob_phone}.conf
same_matrix wg-quick-linuxserver 3 4 peer_alice/peer_alice.conf peer_phone/peer_phone.conf
same_matrix wg-quick-linuxserver-2022 3 4 peer_alice/peer_alice.conf peer_site/peer_site.conf
