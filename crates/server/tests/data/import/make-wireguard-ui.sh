#!/usr/bin/env bash
# Makes a sample of ngoduykhanh/wireguard-ui: the program itself, without its page's pictures, asked as its page does.
# Needs go, jq and curl, too.
real_curl=${real_curl:-$(type -P curl)}
export real_curl
prepare() {
  mkdir -p assets && touch assets/none
  go build -o wgui .
}
source "$(dirname "$0")/make.bash"
cd "$INSIDE"
rm -rf db
# What its README tells to set.
rules() { # A|D
  echo "iptables -$1 FORWARD -i wg0 -j ACCEPT; iptables -$1 FORWARD -o wg0 -j ACCEPT; iptables -t nat -$1 POSTROUTING -o eth0 -j MASQUERADE"
}
env DISABLE_LOGIN=true BIND_ADDRESS=127.0.0.1:5000 WGUI_ENDPOINT_ADDRESS=vpn.example.com \
  WGUI_SERVER_POST_UP_SCRIPT="$(rules A)" WGUI_SERVER_POST_DOWN_SCRIPT="$(rules D)" ./wgui >/run/log 2>&1 &
page() { # PATH [JSON]
  "$real_curl" -sSf -H 'Content-Type: application/json' ${2:+-d "$2"} "http://127.0.0.1:5000/$1" || { cat /run/log && exit 1; }
}
for _ in {1..100}; do
  "$real_curl" -s http://127.0.0.1:5000/_health >/dev/null && break
  sleep 0.1
done
client() { # NAME ADDRESS [JSON of other fields]
  page new-client "$(jq -n --arg name "$1" --arg ip "$2" '{name: $name, email: "", allocated_ips: [$ip],
    allowed_ips: ["0.0.0.0/0"], extra_allowed_ips: [], use_server_dns: true, enabled: true} + '"${3:-{\}}")" >/dev/null
}
id() { page api/clients | jq -r --arg name "$1" '.[].Client | select(.name == $name).id'; }
client alice 10.252.1.1/32 '{email: "alice@example.com"}'
# Her key is her own, and there are networks behind her router.
client "Bob Miller" 10.252.1.2/32 "{public_key: \"$(/run/bin/wg genkey | wg pubkey)\", extra_allowed_ips: [\"192.168.77.0/24\"],
  allowed_ips: [\"10.252.1.0/24\", \"192.168.5.0/24\"], additional_notes: \"behind the router\\nsecond floor\", use_server_dns: false}"
client old 10.252.1.3/32
client gone 10.252.1.4/32
client late 10.252.1.9/32
page client/set-status "{\"id\": \"$(id old)\", \"status\": false}" >/dev/null
page remove-client "{\"id\": \"$(id gone)\"}" >/dev/null
page api/apply-wg-config '{}' >/dev/null

fresh
cp -r db "$folder"
rm -rf "$folder/db/users" "$folder/db/hashes.json" "$folder/db/server/hashes.json"
cp /etc/wireguard/wg0.conf "$folder"
for name in alice "Bob Miller" old late; do
  file=${name,,}
  page "download?clientid=$(id "$name")" >"$folder/clients/${file// /-}.conf"
done
# The identifiers are random; these are not.
n=0
for name in alice "Bob Miller" old late; do
  n=$((n + 1)) id=$(id "$name")
  find "$folder" -type f -exec sed -i "s/$id/dc1ud41ksdudemp8e92$n/g" {} +
  mv "$folder/db/clients/$id.json" "$folder/db/clients/dc1ud41ksdudemp8e92$n.json"
done
rmdir "$folder"/db/wake_on_lan_hosts
# Version 0.5 makes a folder `users.json`, which git would forget.
find "$folder" -type d -empty -exec touch {}/.keep \;
chmod -R u=rwX,go=rX "$folder"
