#!/usr/bin/env bash
# Makes a sample of burghardt/easy-wg-quick: three clients, with iptables.
source "$(dirname "$0")/make.bash"
cd "$INSIDE"
# What is drawn by lot otherwise.
echo 51820 >portno.txt
echo 10.99.7. >intnetaddress.txt
echo fd99:7:7:7:: >intnet6address.txt
for name in alice bob_phone late-one; do ./easy-wg-quick "$name" >>/run/log 2>&1 || { cat /run/log && exit 1; }; done
fresh
cp wghub.conf "$folder"
sed -i 's/^# Hub configuration created on .*/# Hub configuration created on host on Sat Nov 28 12:00:00 UTC 2026/' "$folder/wghub.conf"
cp wgclient_*.conf "$folder/clients"
chmod -R u=rwX,go=rX "$folder"
