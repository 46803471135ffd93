#!/usr/bin/env bash
# `plan` says what `up` would do, conflicts included, and does nothing; `status` says how tunnels do, with names, and does
# not call dead what it may not ask.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need jq

hosts_with_files
ip -n h1 route add default via 192.0.2.2
echo "nameserver 192.0.2.54" >"$WORK/etc/resolv.conf"
address h2 lo 192.168.77.9/32
json() { at h1 "$LINERATE" "$1" --json "${@:2}" >"$WORK/json" && jq -e . "$WORK/json" >/dev/null; }
fact() { jq -r "$1" "$WORK/json"; } # FILTER

say "plan"
tunnel_file wg1 0.0.0.0/0,::/0,192.168.77.0/24 "DNS = 192.0.2.53" "PreUp = touch $WORK/was-run" "#! KillSwitch = true" "#! ExcludedIPs = 198.18.0.0/15"
remember
sysctls() { at h1 sysctl -a -r '^net\.(ipv4|ipv6)\.(conf|ip_forward)' 2>/dev/null; }
sysctls >"$WORK/sysctls"
good linerate plan wg1
said "the conflict" "Warning: 192.168.77.0/24 .*lan1"
said "the kill switch" "only traffic through wg1 may leave"
said "the name servers" "192.0.2.53"
said "the command" "PreUp: touch"
as_before "plan"
json plan wg1
as_before "plan --json"
diff <(sysctls) "$WORK/sysctls" || fail "plan has changed a variable of the kernel"
[[ ! -e $WORK/was-run ]] || fail "plan has run a command"
[[ ! -e /run/linerate/wg1.json ]] || fail "plan has left a ledger"
steps=$(fact '.steps | length')
expect_at_least "steps" 10 "$steps"
expect "the conflict" "192.168.77.0/24 lan1" "$(fact '.warnings[0] | .wanted.to + " " + .existing.device')"
good linerate up wg1
expect "steps that up has done" "$steps" "$(jq '.steps | length' /run/linerate/wg1.json)"
diff <(jq .steps "$WORK/json") <(jq .steps /run/linerate/wg1.json) || fail "up has done something else than was planned"
bad linerate plan wg1
said "plan of what is up" "already exists"
good linerate down wg1
is_gone wg1

sed -i '/^Address/a #! RouteConflict = fail' /etc/wireguard/wg1.conf
remember
bad linerate plan wg1
said "plan of what would be refused" "192.168.77.0/24 .*lan1"
as_before "plan of what would be refused"

say "status"
tunnel_file wg1 10.9.0.2/32,fd09::2/128
key h3
cat >>/etc/wireguard/wg1.conf <<CONF

[Peer]
# Name = the laptop
PublicKey = $(public h3)
AllowedIPs = 10.9.0.3/32
CONF
sed -i 's/^\[Peer\]$/# friendly_name = other end\n&/;t done;b;:done' /etc/wireguard/wg1.conf
sed -i '0,/^# friendly_name/!{/^# friendly_name/d}' /etc/wireguard/wg1.conf
bad linerate status wg1
said "status of what is down" "wg1"
good linerate up wg1
json status wg1
expect "the implementation" daemon "$(fact '.[0].implementation')"
expect "health before a handshake" never "$(fact '.[0].peers[] | select(.endpoint) | .health')"
bad linerate status wg1 --check
pings h1 10.9.0.2
good linerate status wg1 --check
good linerate status wg1
said "the tunnel" "^wg1: run by a daemon, .*10.9.0.1/24, .*MTU 1420, 1 of 2 peers connected"
said "a peer's name" "^  the laptop "
json status wg1
expect "health after a handshake" alive "$(fact '.[0].peers[] | select(.endpoint) | .health')"
expect "the addresses" "10.9.0.1/24 fd09::1/64" "$(fact '.[0].addresses[]' | grep -v ^fe80 | xargs)"
expect "the file" /etc/wireguard/wg1.conf "$(fact '.[0].file')"
expect "names" "the laptop" "$(fact '.[0].peers[] | select(.name == "the laptop").name')"
expect_at_least "bytes received" 300 "$(fact '.[0].peers[] | select(.endpoint) | .received')"
grep -qF "$(cat "$WORK/h1.key")" "$WORK/json" && fail "status prints the private key"

say "status by somebody who may not ask"
as_nobody() { # ARGUMENT... : status, as others than root ask for it
  STATUS=0
  at h1 setpriv --reuid 65534 --regid 65534 --clear-groups "$LINERATE" status "$@" >"$WORK/said" 2>&1 || STATUS=$?
  { echo "--- as nobody, status $*: $STATUS" && cat "$WORK/said"; } >>"$SCENARIO_LOGS/said.log"
}
for arguments in "" wg1 --check "wg1 --check"; do
  as_nobody $arguments
  expected=1 # not works, but unknown: --check tells them apart
  [[ $arguments != *--check* ]] || expected=2
  expect "status $arguments without permission" "$expected" "$STATUS"
  said "status $arguments without permission" "^wg1: state unknown: permission denied.* as root"
  grep -q "not running" "$WORK/said" && fail "a tunnel at work is called dead"
done
as_nobody --json
expect "the implementation" unknown "$(jq -r '.[] | select(.interface == "wg1").implementation' "$WORK/said")"
chmod 700 /run/wireguard
as_nobody
expect "status of who may not see the sockets" 1 "$STATUS"
said "status of who may not see the sockets" "permission denied for .*/wireguard; try again as root"
chmod 755 /run/wireguard

say "status of a tunnel that works for nobody"
ip -n h1 link set wg1 down
bad linerate status wg1 --check
said "the link is down" "^wg1: .*; the interface is down$"
json status wg1
expect "the link" true "$(fact '.[0].linkDown')"
link_up h1 wg1
pings h1 10.9.0.2
bad linerate status wg1 --check
said "the IPv6 address is gone with the link" "; another program removed .*fd09::1/64.*: \`linerate reload wg1\` restores that$"
json status wg1
expect "what is lost" 1 "$(fact '.[0].lost | length')"
good linerate reload wg1
good linerate status wg1 --check
on h1 wg set wg1 private-key /dev/null
bad linerate status wg1 --check
said "no key" "^wg1: .*; it has no private key$"
on h1 wg set wg1 private-key "$WORK/h1.key"
pings h1 10.9.0.2
good linerate status wg1 --check

pkill -KILL -f "linerated wg1\$"
wait_for 5 "the interface to go" no_link wg1
bad linerate status wg1 --check
said "a tunnel that is not running" "^wg1: not running"
json status # named, it would be a failure
expect "the implementation" gone "$(fact '.[] | select(.interface == "wg1") | .implementation')"
good linerate down wg1
is_gone wg1
tunnel_file wg1 10.9.0.2/32 "PostUp = exit 3" "#! OnHookError = warn"
good linerate up wg1
pings h1 10.9.0.2
bad linerate status wg1 --check
said "a hook that failed" "a hook failed"
good linerate down wg1
is_gone wg1

ENDPOINT=nowhere.invalid:50002 tunnel_file wg1 10.9.0.2/32
good linerate up wg1
bad linerate status wg1 --check
said "a name without an address" "nowhere.invalid:50002 .no address yet."
json status wg1
expect "the name" nowhere.invalid:50002 "$(fact '.[0].peers[0].endpointName')"
good linerate down wg1
is_gone wg1
