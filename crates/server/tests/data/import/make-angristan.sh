#!/usr/bin/env bash
# Makes a sample of angristan/wireguard-install: the questions are answered, clients are added, one is revoked.
source "$(dirname "$0")/make.bash"
mount -t tmpfs tmpfs /root
script=$INSIDE/wireguard-install.sh
revoke=$(sed -n 's/.*[^0-9]\([0-9]\)) Revoke existing user.*/\1/p' "$script")

# ADDRESS, then the interfaces, the addresses in the tunnel, port, name servers, routes (newer versions ask), a key to go on.
asks=(198.51.100.7 eth0 wg0 10.66.66.1 fd42:42:42::1 51820 1.1.1.1 "")
grep -q ALLOWED_IPS "$script" && asks+=("0.0.0.0/0,::/0")
# The key to go on, and the first client, with the addresses that are offered.
answers "${asks[@]}" "" alice 2 2 | bash "$script" >/run/log 2>&1 || { cat /run/log && exit 1; }
answers 1 bob_phone 3 3 | bash "$script" >>/run/log 2>&1
answers 1 gone 4 4 | bash "$script" >>/run/log 2>&1
answers "$revoke" 3 | bash "$script" >>/run/log 2>&1
answers 1 late-one 9 9 | bash "$script" >>/run/log 2>&1

fresh
cp /etc/wireguard/{wg0.conf,params} "$folder"
cp /root/wg0-client-*.conf "$folder/clients"
keep_host /etc/sysctl.d/wg.conf
chmod -R u=rwX,go=rX "$folder"
