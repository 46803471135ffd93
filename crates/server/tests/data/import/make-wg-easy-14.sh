#!/usr/bin/env bash
# Makes the sample wg-easy-14: runs wg-easy itself, of the branch v14, and uses it as its page does.
#   make-wg-easy-14.sh REPOSITORY DAEMON FOLDER
# REPOSITORY is a clone of wg-easy, DAEMON a WireGuard daemon in user space for wg-quick, FOLDER where the sample goes.
# Needs root, node, npm, jq, curl, wireguard-tools and iptables. Everything runs in namespaces of its own.
set -euo pipefail
repository=$(realpath "$1") daemon=$(realpath "$2") folder=$(realpath -m "$3")

if [[ -z ${INSIDE:-} ]]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  git -C "$repository" archive v14 src | tar -x -C "$work"
  (cd "$work/src" && npm ci --omit=dev --ignore-scripts --no-audit --no-fund >/dev/null)
  INSIDE=$work unshare --mount --net --pid --fork --kill-child --mount-proc "$0" "$repository" "$daemon" "$folder"
  exit
fi

mount -t tmpfs tmpfs /etc/wireguard
mount -t tmpfs tmpfs /run
mkdir -p /run/wireguard
ip link set lo up
ip link add eth0 type veth peer name uplink
ip link set eth0 up
export WG_QUICK_USERSPACE_IMPLEMENTATION=$daemon
cd "$INSIDE/src"
hash=$(node -e 'console.log(require("bcryptjs").hashSync("a password", 12))')

# What `docker inspect` prints: the variables of the image, and those that its README tells to set.
environment=(
  "PASSWORD_HASH=$hash"
  "LANG=en"
  "WG_HOST=vpn.example.com"
  "PORT=51821"
  "WG_PORT=51820"
  "PATH=$PATH"
  "NODE_VERSION=$(node -p process.versions.node)"
  "DEBUG=Server,WireGuard"
)
env "${environment[@]}" node server.js >/run/log 2>&1 &
api() { # METHOD PATH [JSON]
  curl -sSf -X "$1" -H "Authorization: a password" \
    -H 'Content-Type: application/json' ${3:+-d "$3"} "http://127.0.0.1:51821/api/wireguard/$2"
}
for _ in {1..100}; do
  api GET client >/dev/null 2>&1 && break
  sleep 0.1
done
id() { api GET client | jq -r --arg name "$1" '.[] | select(.name == $name).id'; }

for name in alice "Bob's phone" "old laptop" gone "Jürgen 📱" "a name that is much longer than an interface's may be"; do
  api POST client "$(jq -n --arg name "$name" '{name: $name}')" >/dev/null
done
api POST "client/$(id "old laptop")/disable" >/dev/null
api DELETE "client/$(id gone)" >/dev/null
# shellcheck disable=SC1112 # people's telephones write this apostrophe
api PUT "client/$(id "Jürgen 📱")/name" '{"name": "Jürgen’s phone"}' >/dev/null
api PUT "client/$(id "Jürgen’s phone")/address" '{"address": "10.8.0.77"}' >/dev/null

rm -rf "$folder"/{wg0.json,wg0.conf,wg-easy.env,clients}
mkdir -p "$folder/clients"
cp /etc/wireguard/wg0.{json,conf} "$folder"
chmod 644 "$folder"/wg0.*
printf '%s\n' "${environment[@]}" "" | sed 's,^PATH=.*,PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin,' \
  >"$folder/wg-easy.env"
for client in "alice:alice" "bobs-phone:Bob's phone" "old-laptop:old laptop" "juergens-phone:Jürgen’s phone"; do
  api GET "client/$(id "${client#*:}")/configuration" >"$folder/clients/${client%%:*}.conf"
done
