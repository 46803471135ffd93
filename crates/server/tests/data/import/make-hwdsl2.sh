#!/usr/bin/env bash
# Makes a sample of hwdsl2/wireguard-install, on a host without firewalld: by --auto, --addclient and --removeclient.
source "$(dirname "$0")/make.bash"
script=$INSIDE/wireguard-install.sh
export HOME=/run/home && mkdir "$HOME"
cd "$HOME"

bash "$script" --auto --clientname alice >/run/log 2>&1 </dev/null || { cat /run/log && exit 1; }
bash "$script" --addclient "bob phone" --dns1 9.9.9.9 >>/run/log 2>&1 </dev/null
bash "$script" --addclient gone >>/run/log 2>&1 </dev/null
bash "$script" --removeclient gone -y >>/run/log 2>&1 </dev/null
bash "$script" --addclient late-one >>/run/log 2>&1 </dev/null

fresh
cp /etc/wireguard/wg0.conf "$folder"
find /run/home /root "$INSIDE" -maxdepth 1 -name '*.conf' -newer /run/bin/wg -exec cp {} "$folder/clients" \;
keep_host /etc/systemd/system/wg-iptables.service /etc/sysctl.d/* /etc/rc.local
chmod -R u=rwX,go=rX "$folder"
