#!/usr/bin/env bash
# timeout: 90
# What a gateway lets pass: routed IPv6, Inbound, ClientIsolation, Destinations; a reload changes it and drops no session.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"

need nft nc
gateway_hosts
gateway_file "#! Gateway = up0"
remember_all
good linerate up wg1
pings c1 10.9.0.1
pings c2 10.9.0.1
no_ping c1 198.18.0.1 # inet knows no way back
routes_back
pings c1 198.18.0.1
pings c1 2001:db8:18::1
expect "c1 is seen by IPv6 as" fd09::2 "$(seen_as c1 2001:db8:18::1)"
say "replies only"
no_ping inet 10.9.0.2
no_ping inet fd09::2
no_ping c1 192.168.77.2

handshakes() { echo "$(handshake_time h1 wg1 c1) $(handshake_time h1 wg1 c2)"; }
before=$(handshakes)
changed() { # LINE... : reloads with these
  gateway_file "$@"
  good linerate reload wg1
  expect "the sessions are the same" "$before" "$(handshakes)"
}

say "all"
changed "#! Gateway = up0, lan1" "#! Inbound = all"
pings inet 10.9.0.2
pings inet fd09::3
pings lan 10.9.0.2
pings c1 192.168.77.2
pings c1 10.9.0.3

say "isolation"
changed "#! Gateway = up0" "#! ClientIsolation = true"
no_ping c1 10.9.0.3
no_ping c2 fd09::2
pings c1 198.18.0.1
pings c2 2001:db8:18::1
no_ping c1 192.168.77.2
expect "lan1 forwards no more" 0 "$(sysctl_of net.ipv4.conf.lan1.forwarding)"

say "destinations"
PEER_LINE[c1]="#! Destinations = 198.18.0.1, 10.9.0.3, 2001:db8:18::/48"
changed "#! Gateway = up0"
pings c1 198.18.0.1
no_ping c1 198.18.0.2
no_ping c1 203.0.113.9
pings c1 10.9.0.3
no_ping c1 fd09::3
pings c1 2001:db8:18::1
no_ping c1 2001:db8:113::9
pings c2 198.18.0.2
no_ping c2 fd09::2 # c1 may not answer

say "a prefix within that of a restricted peer is its own peer's"
PEER_LINE[c1]=$'AllowedIPs = 10.9.0.0/28\n#! Destinations = 198.18.0.1'
changed "#! Gateway = up0"
pings c1 198.18.0.1
no_ping c1 198.18.0.2
pings c2 198.18.0.2
no_ping c1 2001:db8:18::1
PEER_LINE[c1]="#! Destinations = 198.18.0.2"
changed "#! Gateway = up0"
no_ping c1 198.18.0.1
pings c1 198.18.0.2

say "without a gateway"
PEER_LINE[c1]=
changed "#! Gateway = off"
no_ping c1 198.18.0.1
! grep -q gateway <<<"$(on h1 nft list tables)" || fail "there is still a table: $(on h1 nft list tables)"
sysctls | sed '/\.wg1\./d' >"$WORK/sysctls-after"
diff "$WORK/sysctls" "$WORK/sysctls-after" || fail "sysctls are not as they were"
changed "#! Gateway = up0"
pings c1 198.18.0.1

say "a reload repairs what a restarted firewall and an interface made anew have lost"
on h1 nft flush ruleset
on h1 sysctl -qw net.ipv4.conf.up0.forwarding=0
no_ping c1 198.18.0.1
changed "#! Gateway = up0"
pings c1 198.18.0.1
on h1 nft list table inet linerate_gateway-wg1 >/dev/null

say "somebody forwards everywhere by now"
on h1 sysctl -qw net.ipv4.ip_forward=1
good linerate down wg1
is_gone wg1
expect "up0 goes on to forward" 1 "$(sysctl_of net.ipv4.conf.up0.forwarding)"
on h1 sysctl -qw net.ipv4.ip_forward=0
all_as_before down
