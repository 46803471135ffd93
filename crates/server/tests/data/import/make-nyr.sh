#!/usr/bin/env bash
# Makes a sample of Nyr/wireguard-install, on a host without firewalld: clients are added, one is removed.
source "$(dirname "$0")/make.bash"
script=$INSIDE/wireguard-install.sh

# Port, name, name server (1.1.1.1), a key to go on.
answers 51820 "alice" 3 "" | bash "$script" >/run/log 2>&1 || { cat /run/log && exit 1; }
answers 1 "bob's phone" 3 | bash "$script" >>/run/log 2>&1
answers 1 gone 3 | bash "$script" >>/run/log 2>&1
answers 2 3 y | bash "$script" >>/run/log 2>&1
answers 1 late-one 1 | bash "$script" >>/run/log 2>&1

fresh
cp /etc/wireguard/wg0.conf "$folder"
files=$INSIDE
ls "$files"/*.conf >/dev/null 2>&1 || files=/root # older versions put them into the home folder
cp "$files"/{alice,bob_s_phone,late-one}.conf "$folder/clients"
keep_host /etc/systemd/system/wg-iptables.service /etc/sysctl.d/*
chmod -R u=rwX,go=rX "$folder"
