#!/usr/bin/env bash
# timeout: 120
# doctor tells why there is no handshake: the way, a firewall, a key, a clock; and says nothing of a tunnel that works.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/doctor.bash"

need jq
two_hosts
tunnel v4
anew() { # : no sessions, no counters
  stop_daemon wg1 && stop_daemon wg2
  tunnel v4
}

begin=$(now_ms)
healthy "a tunnel that nobody has used yet" h1 wg1
healthy "the other end" h2 wg2
note "doctor took $(($(now_ms) - begin)) ms for two healthy ends"
pings h1 10.9.0.2
healthy "a tunnel in use" h1 wg1

say "nothing arrives"
block h2 in udp dport 50002
forget h1 wg1
finds "a router on the way drops" h1 wg1 no-handshake-nothing-arrives
tells "192.0.2.2:50002"
unblock h2

say "the way to the endpoint"
on h1 wg set wg1 peer "$(public h2)" endpoint 203.0.113.9:50002
finds "an endpoint without a route" h1 wg1 endpoint-no-route
on h1 wg set wg1 peer "$(public h2)" endpoint 10.9.0.99:50002
finds "an endpoint inside of the tunnel" h1 wg1 endpoint-through-tunnel

say "firewalls of the host"
anew
on h1 nft 'add table inet fw; add chain inet fw out { type filter hook output priority 0; }; add rule inet fw out udp dport 50002 counter drop'
finds "a rule against what is sent" h1 wg1 firewall-drops-sent
tells "table inet fw, chain out drops them"
advised "a rule against what is sent" h1 firewall-drops-sent
forget h1 wg1
pings h1 10.9.0.2
healthy "that rule, after what was advised" h1 wg1
on h1 nft delete table inet fw
anew
on h1 nft 'add table inet fw; add chain inet fw in { type filter hook input priority 0; policy drop; }; add rule inet fw in iifname lo accept'
finds "a policy against what arrives" h1 wg1 firewall-drops-port no-handshake-nothing-arrives
tells "chain in accepts them, and its policy is drop"
on h1 nft add rule inet fw in ct state established accept
anew
healthy "a policy that lets answers in" h1 wg1
on h1 nft delete table inet fw

say "keys"
anew
key other
on h1 wg set wg1 peer "$(public h2)" remove
on h1 wg set wg1 peer "$(public other)" allowed-ips 10.9.0.2/32 endpoint 192.0.2.2:50002
finds "a wrong public key of the other end, where it is" h1 wg1 no-handshake-nothing-arrives
finds "a wrong public key of the other end, there" h2 wg2 handshake-for-another-key
tells "at the other end: PublicKey = "
anew
on h1 wg set wg1 private-key "$WORK/other.key"
no_ping h1 10.9.0.2
finds "a key that the other end does not know" h2 wg2 handshake-from-unknown-key
anew
preshared both
on h1 wg set wg1 peer "$(public h2)" preshared-key "$WORK/both.psk"
finds "a preshared key at one end" h1 wg1 preshared-key-differs
anew
block h1 in udp sport 50002
on h1 ping -n -c 1 -W 1 10.9.0.2 >/dev/null || true
sleep 5.5 # an initiation each 5 s
finds "answers that do not reach their peer" h2 wg2 handshake-not-confirmed
unblock h1
