#!/usr/bin/env bash
# One file for all hosts of a mesh: the peer that is this host itself is left out, by the host as by the device.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
ip -n h1 route add default via 192.0.2.2
key h3
file=/etc/wireguard/wg1.conf
own_peer() { # LINE... : the section of h1 itself
  printf '\n[Peer]\nPublicKey = %s\n' "$(public h1)" && printf '%s\n' "$@"
}
private() { sed -i "s|^PrivateKey = .*|$1|" $file; } # LINE

for key in "PrivateKey = $(cat "$WORK/h1.key")" "#! PrivateKeyFile = $WORK/h1.key"; do
  say "${key%% =*}: its own LAN stays where it is"
  tunnel_file wg1 10.9.0.2/32
  private "$key"
  own_peer "AllowedIPs = 192.168.77.0/25, 192.168.77.128/25, 10.9.0.1/32" "Endpoint = h1.example.com:50001" >>$file
  remember
  good linerate plan wg1
  said "plan" "the interface's own public key, and is left out"
  ! grep -q 192.168.77 "$WORK/said" || fail "plan routes the LAN: $(grep 192.168.77 "$WORK/said")"
  for who in linerate wg-quick; do
    good $who up wg1
    pings h1 10.9.0.2
    pings h1 192.168.77.2
    expect "$who: peers" "$(public h2)" "$(on h1 wg show wg1 peers)"
    expect "$who: routes" "10.9.0.0/24" "$(ip -n h1 -4 route show dev wg1 | awk '{ print $1 }' | xargs)"
    ! supervisor_of wg1 || fail "a supervisor looks this host's own name up"
    good linerate reload wg1
    said "reload" "nothing has changed"
    good $who down wg1
    is_gone wg1
    as_before "$who down"
  done
done

say "a default route of its own makes no full tunnel"
tunnel_file wg1 10.9.0.2/32
own_peer "AllowedIPs = 0.0.0.0/0, ::/0" "Endpoint = 127.0.0.1:50001" >>$file
good linerate up wg1
expect "the way out" "192.0.2.2" "$(ip -n h1 route get 203.0.113.7 | awk '{ print $3; exit }')"
expect "rules" "$(grep -c . <(ip -n h2 rule))" "$(grep -c . <(ip -n h1 rule))"
good linerate down wg1

say "a prefix that another peer has, too, stays with that, as on the device"
tunnel_file wg1 10.9.0.2/32,10.20.0.0/24
own_peer "AllowedIPs = 10.20.0.0/24" >>$file
good linerate up wg1
expect "allowed IPs" "10.9.0.2/32 10.20.0.0/24" "$(on h1 wg show wg1 allowed-ips | cut -f 2)"
expect "the route" "wg1" "$(ip -n h1 route get 10.20.0.1 | sed 's/.*dev \([^ ]*\).*/\1/;q')"

say "a peer whose key becomes the interface's is left out from then on"
printf '\n[Peer]\nPublicKey = %s\nAllowedIPs = 10.30.0.0/24\n' "$(public h3)" >>$file
good linerate reload wg1
expect "the route" "wg1" "$(ip -n h1 route get 10.30.0.1 | sed 's/.*dev \([^ ]*\).*/\1/;q')"
private "PrivateKey = $(cat "$WORK/h3.key")"
good linerate reload wg1
expect "the route" "e1" "$(ip -n h1 route get 10.30.0.1 | sed 's/.*dev \([^ ]*\).*/\1/;q')"
good linerate down wg1
