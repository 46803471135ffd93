#!/usr/bin/env bash
# timeout: 90
# The container image without any privilege: an ordinary user, no capability, no device, a read-only root folder. It is a
# proxy by the stack of the process, confines itself, and says whether it is ready.
source "$(dirname "$0")/../netns/lib.sh"
source "$(dirname "$0")/image.bash"
need curl python3

two_hosts
far_end
mkdir "$WORK/site" "$WORK/proxy"
head -c 3000000 /dev/urandom >"$WORK/site/file"
ip netns exec h2 python3 -m http.server --bind 10.9.0.2 --directory "$WORK/site" 80 >"$SCENARIO_LOGS/site.log" 2>&1 &
(umask 077 && cat >"$WORK/proxy/proxy.conf") <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.9.0.1/24
[Peer]
PublicKey = $(public h2)
Endpoint = 192.0.2.2:50002
AllowedIPs = 10.9.0.0/24
[Socks5]
BindAddress = 127.0.0.1:1080
[Proxy]
Info = 127.0.0.1:9080
CheckAlive = 10.9.0.2
CheckAliveInterval = 1
CONF
chown 65532 "$WORK/proxy/proxy.conf"
chmod 711 "$WORK" "$WORK/proxy"
# The arguments and the user are those of the example for Kubernetes.
manifest=$REPO/packaging/kubernetes/proxy.yaml
args=$(sed -n 's/^ *args: \[\(.*\)\]$/\1/p' "$manifest")
user=$(sed -n 's/^ *runAsUser: //p' "$manifest")
jq --arg conf "$WORK/proxy/proxy.conf" --arg args "$args" --argjson user "$user" '
  .process.terminal = false
  | .process.args = ["/usr/bin/linerate"] + ($args | split(", "))
  | .process.user = {uid: $user, gid: $user}
  | .process.noNewPrivileges = true
  | .process.capabilities = {bounding: [], effective: [], permitted: [], inheritable: [], ambient: []}
  | .process.env += ["LINERATE_SECCOMP=kill"]
  | .root.readonly = true
  | .mounts += [{destination: "/etc/linerate-proxy/proxy.conf", type: "bind", source: $conf, options: ["bind", "ro"]}]
  | .linux.namespaces |= map(if .type == "network" then .path = "/run/netns/h1" else . end)
  | .linux.devices = []
  | .linux.resources.devices = [{allow: false, access: "rwm"}]' "$WORK/config.json" >"$bundle/config.json"
container

say "through the proxy"
fetch() { on h1 curl -s --proxy socks5h://127.0.0.1:1080 http://10.9.0.2/file -o "$WORK/fetched"; }
wait_for 20 "the proxy" fetch
cmp "$WORK/site/file" "$WORK/fetched" || fail "the file is another one"
grep -q 'the TCP/IP in the tunnel is that of this process' "$SCENARIO_LOGS/container.log" || fail "another stack"
is_ready() { [[ $(on h1 curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:9080/readyz) == 200 ]]; }
wait_for 20 "readiness" is_ready

say "what it has"
pid=$(cat "$WORK/pid")
status() { awk -v name="$1:" '$1 == name { print $2 }' "/proc/$pid/status"; }
expect "user, capabilities, no new privileges, filter" "$user 0000000000000000 0000000000000000 1 2" \
  "$(status Uid) $(status CapEff) $(status CapBnd) $(status NoNewPrivs) $(status Seccomp)"
expect "interfaces" "e1 lo" "$(ip -n h1 -j link | jq -r 'map(.ifname) | sort | join(" ")')"

say "the peer goes silent"
stop_daemon wg2
is_unready() { [[ $(on h1 curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:9080/readyz) == 503 ]]; }
wait_for 20 "unreadiness" is_unready
expect "liveness" ok "$(on h1 curl -s http://127.0.0.1:9080/livez)"

say "the end"
runc kill "$name" TERM
wait_for 10 "the container to end" stopped
