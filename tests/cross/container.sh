#!/usr/bin/env bash
# timeout: 90
# The container image, run by runc with CAP_NET_ADMIN and /dev/net/tun alone, and a read-only root folder: a tunnel to a
# daemon outside, its health check, its end.
source "$(dirname "$0")/../netns/lib.sh"
source "$(dirname "$0")/image.bash"

say "the image"
expect "blobs by their SHA-256" "$(ls "$layout/blobs/sha256")" "$(sha256sum "$layout"/blobs/sha256/* | cut -d ' ' -f 1 | sort)"
note "architectures: $(jq -r '.manifests | map(.platform.architecture) | join(" ")' "$images"), $(($(stat -c %s "$image") / 1000)) kB"
mapfile -t health < <(jq -r '.config.Healthcheck.Test[1:][]' "$config")
expect "programs in the image" "linerate linerate-proxy linerated wg" "$(cd "$bundle/rootfs/usr/bin" && echo *)"

say "the container"
two_hosts
far_end
(umask 077 && cat >"$WORK/wg0.conf") <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.9.0.1/24, fd09::1/64
[Peer]
PublicKey = $(public h2)
Endpoint = 192.0.2.2:50002
AllowedIPs = 10.9.0.0/24, fd09::/64, 10.77.0.0/24
CONF
jq --arg conf "$WORK/wg0.conf" '
  ["CAP_NET_ADMIN"] as $only
  | .process.terminal = false
  | .process.capabilities = {bounding: $only, effective: $only, permitted: $only, inheritable: [], ambient: []}
  | .root.readonly = true
  | .mounts += [
      {destination: "/run", type: "tmpfs", source: "tmpfs", options: ["nosuid", "nodev", "noexec", "mode=755"]},
      {destination: "/etc/wireguard/wg0.conf", type: "bind", source: $conf, options: ["bind", "ro"]}]
  | .linux.namespaces |= map(if .type == "network" then .path = "/run/netns/h1" else . end)
  | .linux.devices = [{path: "/dev/net/tun", type: "c", major: 10, minor: 200, fileMode: 384, uid: 0, gid: 0}]
  | .linux.resources.devices = [{allow: false, access: "rwm"}, {allow: true, type: "c", major: 10, minor: 200, access: "rw"}]' \
  "$WORK/config.json" >"$bundle/config.json"
container
healthy() { runc exec "$name" "${health[@]}"; }
unhealthy() { ! healthy; }
wait_for 10 "the health check to pass" healthy
say "$(sed -n 1p <<<"$(healthy)")"

pings h1 10.9.0.2 # h2 knows no endpoint
pings h2 10.9.0.1
pings h2 fd09::1
expect "routes" 10.77.0.0/24 "$(ip -n h1 route show dev wg0 10.77.0.0/24 | awk '{ print $1 }')"
expect "wg in the container" "$(public h2)" "$(runc exec "$name" wg show wg0 peers)"
daemon_in() { pgrep -f '^(/usr/bin/)?linerated.* wg0$' | head -n 1; }
expect "capabilities of the supervisor" 0000000000001000 "$(awk '/^CapBnd/ { print $2 }' "/proc/$(cat "$WORK/pid")/status")"
expect "capabilities of the daemon" 0000000000001000 "$(awk '/^CapEff/ { print $2 }' "/proc/$(daemon_in)/status")"
STATUS=0
runc exec "$name" linerate man /usr >"$WORK/said" 2>&1 || STATUS=$?
expect "writing to the root folder" "1 Read-only file system" "$STATUS $(grep -o 'Read-only file system' "$WORK/said")"

say "a daemon that dies is started again, a frozen one is no health"
old=$(daemon_in)
kill -KILL "$old"
renewed() { [[ -n $(daemon_in) && $(daemon_in) != "$old" ]] && healthy; }
wait_for 10 "another daemon" renewed
pings h1 10.9.0.2
frozen=$(daemon_in)
kill -STOP "$frozen"
wait_for 10 "the health check to fail" unhealthy
kill -CONT "$frozen"
wait_for 10 "the health check to pass again" healthy

say "the end"
runc kill "$name" TERM
wait_for 10 "the container to end" stopped
no_link() { ! ip -n h1 link show wg0; }
wait_for 5 "the interface to go" no_link
expect "routes that stayed" "" "$(ip -n h1 route show 10.77.0.0/24)"
