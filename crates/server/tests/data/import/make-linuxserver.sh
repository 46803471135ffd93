#!/usr/bin/env bash
# Makes a sample of the image linuxserver/wireguard: the script that makes its files, with its usual environment.
source "$(dirname "$0")/make.bash"
mkdir /run/config /run/defaults
mkdir -p /config /defaults 2>/dev/null
mount --bind /run/config /config
mount --bind "$INSIDE/root/defaults" /defaults
mkdir -p /config/{templates,coredns}
for name in lsiown resolvconf chown; do stand_in $name <<<$'#!/bin/sh\nexit 0'; done
script=$(find "$INSIDE/root/etc" -path '*init-wireguard-confs/run' -o -path '*/40-confs')
make() { env "$@" bash "$script" >>/run/log 2>&1 || { cat /run/log && exit 1; }; }
make SERVERURL=vpn.example.com PEERS=alice,phone
# The site behind the third has a network; that makes the files anew, with the same keys.
make SERVERURL=vpn.example.com PEERS=alice,phone,site SERVER_ALLOWEDIPS_PEER_site=192.168.30.0/24 \
  PERSISTENTKEEPALIVE_PEERS=phone PEERDNS=auto
fresh
rmdir "$folder/clients"
cp -r /config/peer_* "$folder"
if [[ -e /config/wg_confs ]]; then cp -r /config/wg_confs "$folder"; else cp /config/wg0.conf "$folder"; fi
find "$folder" -name '*.png' -delete
chmod -R u=rwX,go=rX "$folder"
