#!/usr/bin/env bash
# timeout: 240
# linerate-proxy@ under a real systemd, as its unit says: a user of its own, the file as a credential, the kernel's stack
# where the unit allows that, the stack of the process where a drop-in forbids it, and nothing left when it is stopped.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need curl jq python3 systemctl
source "$(dirname "$0")/systemd.bash"
[[ -x $LINERATE_PROXY ]] || skip "there is no $LINERATE_PROXY (cargo build -p linerate-proxy)"

# A driver that every user may open, as udev's rules of systemd make it.
mknod -m 666 "$WORK/tun" c 10 200 && mount --bind "$WORK/tun" /dev/net/tun

two_hosts
far_end
mkdir "$WORK/site"
head -c 1000000 /dev/urandom >"$WORK/site/file"
ip netns exec h2 python3 -m http.server --bind 10.9.0.2 --directory "$WORK/site" 80 >"$SCENARIO_LOGS/site.log" 2>&1 &
(umask 077 && cat >/etc/wireguard/work.conf) <<CONF
[Interface]
#! PrivateKeyFile = work.key
Address = 10.9.0.1/24
[Peer]
PublicKey = $(public h2)
Endpoint = 192.0.2.2:50002
AllowedIPs = 10.9.0.0/24

#! [Socks5]
#! BindAddress = 127.0.0.1:1080
#! [Proxy]
#! Info = 127.0.0.1:9080
#! CheckAlive = 10.9.0.2
#! CheckAliveInterval = 1
CONF
(umask 077 && cp "$WORK/h1.key" /etc/wireguard/work.key)
mount -t tmpfs -o mode=0755 tmpfs /var/lib
install -D -m 644 /dev/stdin /etc/systemd/system/linerate-proxy@work.service.d/key.conf <<UNIT
[Service]
LoadCredential=work.key:/etc/wireguard/work.key
Environment=LINERATE_SECCOMP=$LINERATE_SECCOMP
StandardError=append:$SCENARIO_LOGS/proxy.log
UNIT
switch_on

fetch() { on h1 curl -s --max-time 20 --proxy socks5h://127.0.0.1:1080 http://10.9.0.2/file -o "$WORK/fetched" && cmp -s "$WORK/site/file" "$WORK/fetched"; }
is_ready() { [[ $(on h1 curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:9080/readyz) == 200 ]]; }
start() { # STACK
  : >"$SCENARIO_LOGS/proxy.log"
  service start linerate-proxy@work || fail "$(cat "$SCENARIO_LOGS/proxy.log"; service status linerate-proxy@work --no-pager; tail -n 20 "$SCENARIO_LOGS/systemd.log")"
  wait_for 30 "the proxy" fetch
  wait_for 30 "an answer to its echo requests" is_ready
  pid=$(property linerate-proxy@work MainPID)
  grep "the TCP/IP in the tunnel is $1" "$SCENARIO_LOGS/proxy.log" || fail "another stack: $(cat "$SCENARIO_LOGS/proxy.log")"
}
status() { inside sed -n "s/^$1:\t//p" "/proc/$pid/status"; }

say "with the kernel's stack"
start "the kernel's"
(($(status Uid | cut -f 1) >= 61184)) || fail "its user is $(status Uid)"
expect "capabilities, no new privileges, filter" "0000000000000000 1 2" "$(status CapEff) $(status NoNewPrivs) $(status Seccomp)"
expect "interfaces of the host" "e1 lo" "$(ip -n h1 -j link | jq -r 'map(.ifname) | sort | join(" ")')"
service stop linerate-proxy@work

say "with the stack of the process"
install -D -m 644 /dev/stdin /etc/systemd/system/linerate-proxy@work.service.d/closed.conf <<UNIT
[Service]
RestrictNamespaces=yes
PrivateDevices=yes
UNIT
service daemon-reload
start "that of this process"
service stop linerate-proxy@work

say "stopped"
expect "units that failed" "" "$(service list-units --state=failed --no-legend --plain)"
expect "processes" "" "$(pgrep -fa linerate-proxy | grep -v scenario || true)"
expect_failure "the port" on h1 curl -s http://127.0.0.1:9080/livez
