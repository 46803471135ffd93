#!/usr/bin/env bash
# timeout: 400
# heavy: a gateway with 10,000 peers
# A gateway with 10,000 peers, each with destinations of its own, has the rules of one with two.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"

need nft perl
gateway_hosts
rules() { on h1 nft list table inet linerate_gateway-wg1 | grep -cE '^\s+(iifname|oifname) '; }
PEER_LINE[c1]="#! Destinations = 198.18.0.1, 2001:db8:18::/48"
gateway_file "#! Gateway = up0" "#! Masquerade = both"
good linerate up wg1
new_sessions
pings c1 198.18.0.1
few=$(rules)
session=$(handshake_time h1 wg1 c1)

# Each with an address of both families, and two destinations of the one and one of the other.
perl -MMIME::Base64 -e '
  open my $random, "<", "/dev/urandom" or die;
  for my $n (0 .. 9999) {
    read $random, my $key, 32;
    printf "[Peer]\nPublicKey = %sAllowedIPs = 10.9.%d.%d/32, fd09::1:%x/128\n", encode_base64($key), $n / 200 + 1, $n % 200 + 1, $n;
    printf "#! Destinations = 198.18.0.0/24, 10.%d.%d.0/24, 2001:db8:%x::/48\n", 100 + $n / 200, $n % 200, $n;
  }' >>/etc/wireguard/wg1.conf
timed() { # WHAT COMMAND...
  local begun=${EPOCHREALTIME/./}
  "${@:2}"
  note "$1: $(((${EPOCHREALTIME/./} - begun) / 1000)) ms"
}
timed "reload that adds 10,000 peers" good linerate reload wg1
expect "rules with 10,002 peers" "$few" "$(rules)"
pings c1 198.18.0.1
no_ping c1 198.18.0.2
pings c2 198.18.0.2

sed -i 's/^#! Destinations = 198.18.0.1,/#! Destinations = 198.18.0.2,/' /etc/wireguard/wg1.conf
timed "reload that changes the destinations of one" good linerate reload wg1
no_ping c1 198.18.0.1
pings c1 198.18.0.2
expect "the session is the same" "$session" "$(handshake_time h1 wg1 c1)"
timed "reload that changes nothing" good linerate reload wg1
timed "down" good linerate down wg1
is_gone wg1
timed "up" good linerate up wg1
expect "rules after up" "$few" "$(rules)"
good linerate down wg1
