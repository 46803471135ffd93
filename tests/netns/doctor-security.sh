#!/usr/bin/env bash
# timeout: 180
# doctor --security finds holes in a kill switch, routes and DNS queries that bypass a tunnel, and what a gateway must not forward.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"
source "$(dirname "$0")/doctor.bash"

need nft
# Runs --security: its output is in $WORK/doctor, errors and warnings in $FOUND, notes in $NOTES, its exit status in $STATUS.
security() { # [OPTION...]
  STATUS=0
  at h1 "$LINERATE" doctor wg1 --security --json "$@" >"$WORK/doctor" 2>"$WORK/doctor-said" || STATUS=$?
  FOUND=$(identifiers 'error|warning') NOTES=$(identifiers note)
  { echo "--- doctor --security $*: $STATUS" && cat "$WORK/doctor" "$WORK/doctor-said"; } >>"$SCENARIO_LOGS/doctor.log"
}
identifiers() { # SEVERITY
  awk -v severity="\"($1)\"" '/"id":/ { id = $2 } /"severity":/ && $2 ~ severity { gsub(/[",]/, "", id); print id }' "$WORK/doctor" |
    sort -u | tr '\n' ' ' | sed 's/ $//'
}
reports() { # WHAT IDENTIFIER... : these errors and warnings with --security, and among the findings without it
  local what=$1 id
  shift
  security
  expect "$what: what --security finds" "$(printf '%s\n' "$@" | sort -u | tr '\n' ' ' | sed 's/ $//')" "$FOUND"
  expect "$what: its status" "$((${#FOUND} > 0))" "$STATUS"
  at h1 "$LINERATE" doctor wg1 --json --no-probe >"$WORK/plain" 2>/dev/null || true
  for id; do grep -q "\"id\": \"$id\"" "$WORK/plain" || fail "$what: doctor without --security does not report $id"; done
}
sound() { reports "$1"; } # WHAT : none
notes() { [[ " $NOTES " == *" $1 "* ]] || fail "expected a note $1, saw: $NOTES"; } # IDENTIFIER
# Runs the commands in the remedy of the finding, in order.
heal() { # IDENTIFIER
  local command
  awk -v id="\"$1\"," '/"id":/ { is = $2 == id } is && /"remedy":/' "$WORK/doctor" | head -n 1 | grep -o '`[^`]*`' | tr -d '`' >"$WORK/remedy"
  [[ -s $WORK/remedy ]] || fail "the remedy of $1 has no command"
  while read -r command; do
    say "fix: $command"
    at h1 env PATH="$PROGRAMS:$PATH" bash -c "$command" >>"$SCENARIO_LOGS/said.log" 2>&1 || fail "the remedy failed: $command"
  done <"$WORK/remedy"
}

gateway_hosts
forwarding m
daemon c1 wg5
on c1 wg set wg5 listen-port 50002 private-key "$WORK/c1.key" peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128
wg_address c1 wg5 10.9.0.77/24
wait_for 5 "the server to listen" listens_udp c1 50002
key h2 && cp "$WORK/c1.key" "$WORK/h2.key"
export ENDPOINT=198.51.101.2:50002
full() { tunnel_file wg1 0.0.0.0/0,::/0 "$@"; } # [LINE...] : a full tunnel on h1

# Removes the routes to the clients' networks, except for the one to the endpoint.
client_networks() { # add|del
  ip -n h1 route "$1" 198.51.101.0/24 via 192.0.2.2
  ip -n h1 route "$1" 198.51.102.0/24 via 192.0.2.2
  ip -n h1 -6 route "$1" 2001:db8:100::/40 via 2001:db8::2
}
client_networks del
ip -n h1 route add 198.51.101.2 via 192.0.2.2

say "a full tunnel without a kill switch"
# Holds the supervisor's lock, so that no supervisor restores what this scenario removes for the doctor to find.
mkdir -p /run/linerate
exec 8>/run/linerate/wg1.supervisor
flock 8
full "DNS = 10.9.0.77"
good linerate up wg1
sound "a full tunnel"
notes routes-past-the-tunnel
at h1 "$LINERATE" doctor wg1 --json --no-probe >"$WORK/plain" || true
! grep -q routes-past "$WORK/plain" || fail "doctor without --security has the note"
ip -n h1 route add 198.18.7.0/24 via 203.0.113.9 proto dhcp
reports "a route of a DHCP server" routes-past-the-tunnel
tells '198.18.7.0/24 over up0 \(proto dhcp\)'
ip -n h1 route del 198.18.7.0/24
ip -n h1 -6 route add 2000::/3 dev up0 proto ra
reports "an advertised on-link prefix" routes-past-the-tunnel
tells '2000::/3 over up0 \(proto ra\)'
full "DNS = 10.9.0.77" "#! KillSwitch = true"
heal routes-past-the-tunnel
sound "with the kill switch"
[[ $NOTES != *routes-past* ]] || fail "there is a note about routes beside a kill switch"
ip -n h1 -6 route del 2000::/3 dev up0
ip -n h1 route add 192.168.99.0/24 via 203.0.113.9

say "names"
echo "nameserver 192.168.77.2" >"$WORK/etc/resolv.conf"
full
good linerate down wg1
is_gone wg1
echo "nameserver 192.168.77.2" >"$WORK/etc/resolv.conf"
good linerate up wg1
reports "a name server of the LAN" names-in-the-clear
tells "the name server is 192.168.77.2"
full "DNS = 10.9.0.77"
good linerate reload wg1
sound "with the tunnel's name server"
echo "nameserver 192.168.77.2" >/etc/resolv.conf
reports "resolv.conf as a DHCP client leaves it" names-in-the-clear
heal names-in-the-clear
sound "up again"
full "#! KillSwitch = true" "#! ExcludeLAN = true"
good linerate reload wg1
echo "nameserver 192.168.77.2" >/etc/resolv.conf
reports "a kill switch that keeps names from the LAN" names-blocked
on h1 nft insert rule inet linerate-wg1 output ip daddr 192.168.77.0/24 udp dport 53 accept
reports "a rule that lets them go there" names-in-the-clear
on h1 nft delete table inet linerate-wg1
full "DNS = 192.168.77.2" "#! KillSwitch = true" "#! ExcludeLAN = true"
good linerate reload wg1
sound "the LAN's name server, as the file has it"
notes names-in-the-clear
mv /etc/wireguard/wg1.conf "$WORK/moved"
on h1 nft delete table inet linerate-wg1
reports "the table is deleted, and the file is gone" kill-switch-hole
mv "$WORK/moved" /etc/wireguard/wg1.conf
heal kill-switch-hole

say "holes in a kill switch"
full "DNS = 10.9.0.77" "#! KillSwitch = true" "#! ExcludeLAN = true"
good linerate reload wg1
sound "a kill switch"
nft=$(type -P nft)
mount --bind /bin/false "$nft"
sound "a kill switch, where there is no nft"
umount "$nft"
on h1 nft delete table inet linerate-wg1
reports "the table is deleted" kill-switch-hole
tells "table inet linerate-wg1 is gone"
heal kill-switch-hole
sound "after the reload"
on h1 nft flush table inet linerate-wg1
reports "the table is emptied" kill-switch-hole
heal kill-switch-hole
sound "and made anew"
no_ping h1 198.18.0.1 -I up0
on h1 nft insert rule inet linerate-wg1 output ip daddr 198.18.0.0/24 accept
pings h1 198.18.0.1 -I up0
reports "an accept rule for a public network" kill-switch-hole
tells "packets of this host to 198.18.0.0 leave outside the tunnel"
heal kill-switch-hole
sound "and made anew"
on h1 nft insert rule inet linerate-wg1 output meta skuid 65534 accept
reports "a rule that is not understood" kill-switch-hole
tells "to any IPv4 address may leave outside the tunnel"
expect "how bad that is" warning "$(sed -n 's/.*"severity": "\(error\|warning\)",/\1/p' "$WORK/doctor" | sort -u)"
heal kill-switch-hole
on h1 nft 'add table inet other; add chain inet other out { type filter hook output priority -10; policy accept; }; add rule inet other out accept'
sound "another tool's table, which accepts everything"
on h1 nft delete table inet other
full "DNS = 10.9.0.77" "#! KillSwitch = true" "#! ExcludedIPs = 198.18.0.0/24"
good linerate reload wg1
sound "a public network that the file excludes"
good linerate down wg1
is_gone wg1
: >"$WORK/etc/resolv.conf"

say "a gateway"
client_networks add
stop_daemon wg5
gateway_file "#! Gateway = up0" "#! Masquerade = both" "#! ClientIsolation = true"
good linerate up wg1
new_sessions
pings c1 198.18.0.1
ip -n inet route add 192.168.77.0/24 via 203.0.113.1
ip -n inet addr add 10.9.0.2/32 dev lo
count lan in strangers iifname lan2 ip saddr 203.0.113.9
count h1 in pretended iifname up0 ip saddr 10.9.0.2
sound "a gateway"
table="inet linerate_gateway-wg1"
on h1 nft delete table $table
reports "its table is deleted" protection-missing
tells "is gone"
heal protection-missing
sound "after the reload"
on h1 nft "flush chain $table forward; add rule $table forward accept"
reports "its rules are deleted" protection-missing metadata-reachable
tells "ClientIsolation, Gateway, Inbound = replies are not in force for IPv4: packets of one client to another, "
tells "for IPv6: .*, new connections from up0 to clients pass"
heal protection-missing
sound "after the reload"
no_ping inet 203.0.113.1 -I 10.9.0.2
expect "packets of a pretended client that reach the host" 0 "$(counted h1 pretended)"
on h1 nft flush chain $table sources
no_ping inet 203.0.113.1 -I 10.9.0.2
expect "those that do now" 1 "$(counted h1 pretended)"
reports "pretended clients" pool-spoofable
tells "packets that come in by e1 from 10.9.0.2, an address of a client, pass to this host"
heal pool-spoofable
sound "after the reload"
no_ping inet 192.168.77.2
expect "packets of the uplink's neighbour that reach the LAN" 0 "$(counted lan strangers)"
on h1 nft delete table inet linerate_forwarding
no_ping inet 192.168.77.2 # lan1 forwards nothing, so the answer is lost
expect "those that do now" 1 "$(counted lan strangers)"
reports "what was opened for the tunnel is open to others" forwards-between-others
tells "packets pass from up0 to e1, up0 to lan1"
heal forwards-between-others
sound "after the reload"
on h1 nft "flush table inet linerate_forwarding; add rule inet linerate_forwarding forward accept"
reports "it is empty" forwards-between-others
heal forwards-between-others
sound "after the reload"
on h1 nft insert rule $table forward iifname wg1 accept
reports "a rule that lets all of the clients out" protection-missing metadata-reachable
tells "clients reach the metadata service"
heal metadata-reachable
sound "after the reload"
on h1 nft delete chain $table nat
reports "addresses are not translated" protection-missing
tells "Masquerade is not in force for IPv4"
heal protection-missing
PEER_LINE[c1]="#! Destinations = 198.18.0.1"
gateway_file "#! Gateway = up0" "#! Masquerade = both"
good linerate reload wg1
sound "a client with destinations"
on h1 nft add element $table destinations4 '{ 10.9.0.2 . 0.0.0.0/0 }'
reports "more destinations than the file has" protection-missing
tells "Destinations is not in force for IPv4"
heal protection-missing
sound "after the reload"

say "forwarding that others switched on"
on h1 sysctl -qw net.ipv4.conf.lan1.forwarding=1
sound "a gateway on a router"
notes forwards-between-others
on h1 nft 'add table inet fw; add chain inet fw through { type filter hook forward priority 10; policy drop; }; add rule inet fw through iifname wg1 accept; add rule inet fw through oifname wg1 accept'
sound "and a firewall that drops the rest"
[[ $NOTES != *forwards-between* ]] || fail "there is a note about what the firewall drops"

say "a server for IPv4 alone, whose interface has a link-local address"
on h1 nft delete table inet fw
on h1 sysctl -qw net.ipv4.conf.lan1.forwarding=0
good linerate down wg1
is_gone wg1
PEER_LINE[c1]=
gateway_file "#! Gateway = up0" "#! Masquerade = ipv4"
sed -i 's/, fd09::[0-9/]*//' /etc/wireguard/wg1.conf
good linerate up wg1
ip -n h1 addr add fe80::77/64 dev wg1 nodad
doctor h1 wg1 --no-probe
expect "what doctor finds" "" "$FOUND"
sound "a server for IPv4 alone"
[[ -z $NOTES ]] || fail "there are notes: $NOTES"
