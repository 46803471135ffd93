#!/usr/bin/env bash
# timeout: 1800
# firewalld on a gateway: the commands that `up` names make way; what is opened takes nothing away, and settings of others stay.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"
source "$(dirname "$0")/firewalls.bash"
source "$(dirname "$0")/firewalld.bash"

firewalld_gateway
stopped_then_mended firewalld
on h1 bash -c 'firewall-cmd --permanent --delete-policy=wg1-out; firewall-cmd --permanent --delete-policy=wg1-udp; firewall-cmd --permanent --delete-zone=wg1; firewall-cmd --reload'
firewalls_as_before "the commands taken back"
loaded_as_before

say "what the tunnel could reach on the host it still can"
good linerate up --fix-firewall wg1
expect "services of the tunnel's zone" "$(on h1 firewall-cmd --zone=public --list-services)" "$(on h1 firewall-cmd --zone=lr-wg1 --list-services)"
gateway_file "#! Gateway = up0" "#! Masquerade = both" "#! Inbound = all"
good linerate reload wg1
new_sessions
reaches c1 198.18.0.1
routes_back
pings inet 10.9.0.2
good linerate down wg1
is_gone wg1
firewalls_as_before "new connections into the tunnel"

say "a name that is too long for firewalld"
name=wg-fifteen-long
sed '/^\[Peer\]/,$d' /etc/wireguard/wg1.conf >"/etc/wireguard/$name.conf"
good linerate up --fix-firewall "$name"
[[ $(cat "$WORK/said") != *"is not opened"* ]] || fail "a long name: $(cat "$WORK/said")"
grep -qE 'lr-wg-fi[0-9a-f]{6}-out' <<<"$(on h1 firewall-cmd --get-policies)" || fail "a long name: no policy among $(on h1 firewall-cmd --get-policies)"
good linerate down "$name"
is_gone "$name"
firewalls_as_before "a long name"

say "what is not permanent is not lost"
gateway_file "#! Gateway = up0" "#! Masquerade = both"
on h1 firewall-cmd --zone=public --add-port=8080/tcp
firewalls >"$WORK/firewalls"
good linerate up --fix-firewall wg1
said "why it is not opened" "firewall-cmd --runtime-to-permanent"
good linerate down wg1
is_gone wg1
firewalls_as_before "settings that are not permanent"

say "firewalld that does not run"
on h1 firewall-cmd --zone=public --remove-port=8080/tcp
firewalls >"$WORK/firewalls"
good linerate up --fix-firewall wg1
stop_firewalld
good linerate down wg1
is_gone wg1
[[ -z $(find /etc/firewalld -name 'lr-*.xml') ]] || fail "something of ours is left: $(find /etc/firewalld -name 'lr-*')"
