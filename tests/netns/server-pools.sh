#!/usr/bin/env bash
# timeout: 120
# `client add` without a free address, without a network for clients (an address without a prefix length, /31, /127) and with one
# IP family in the tunnel: each message names a command, and that command works.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
need jq

internet
key server
has_file() { # ADDRESS [LINE...] : a server that runs
  (umask 077 && cat >/etc/wireguard/wg0.conf) <<CONF
[Interface]
Address = $1
ListenPort = 51820
PrivateKey = $(cat "$WORK/server.key")
#! PublicEndpoint = 203.0.113.5
#! Gateway = auto
$(printf '%s\n' "${@:2}")
CONF
  good linerate up wg0
}
gone() {
  good linerate down wg0
  is_gone wg0
}
add() { good linerate client add "$1" --output "$WORK/wg9.conf" && mv "$WORK/wg9.conf" "$WORK/$1.conf"; } # NAME
advised() { # the command of `server set --pool NETWORK' that was said last
  local advice
  advice=$(grep -oE 'server set --pool [0-9a-f.:/]+' "$WORK/said" | head -n 1)
  [[ -n $advice ]] || fail "no command was named: $(cat "$WORK/said")"
  # shellcheck disable=SC2086 # words
  good linerate $advice
}
works() { # CLIENT ADDRESS... : it reaches these
  sed '/^DNS/d' "$WORK/$1.conf" >"$WORK/wg9.conf"
  chmod 600 "$WORK/wg9.conf"
  at laptop timeout 60 "$LINERATE" up "$WORK/wg9.conf" >>"$SCENARIO_LOGS/said.log" 2>&1
  local to
  for to in "${@:2}"; do pings laptop "$to"; done
  at laptop timeout 60 "$LINERATE" down "$WORK/wg9.conf" >>"$SCENARIO_LOGS/said.log" 2>&1
  rm "$WORK/wg9.conf"
}

say "no address is free, in one of two families"
has_file "10.7.4.1/24, fd00:7::1/126" "#! Masquerade = both"
add one
add two
bad linerate client add three
said "the full network" "fd00:7::/126 is full"
cmp -s <(grep -c '^\[Peer\]' /etc/wireguard/wg0.conf) <(echo 2) || fail "a client was added"
advised
add three
works three 198.51.100.2 2001:db8:3::2
gone

say "the wider network is not free"
has_file "10.7.4.1/30" "#! Masquerade = ipv4"
add one
ip -n h1 route add 10.7.4.4/30 via 203.0.113.1
bad linerate client add two
said "the full network" "10.7.4.0/30 is full"
bad linerate server set --pool 10.7.4.0/29
said "the network in the way" "uses 10.7.4.4/30. Remove it there, or free addresses"
ip -n h1 route del 10.7.4.4/30
server set --pool 10.7.4.0/29
add two
works two 198.51.100.2
gone

say "no network for clients"
for address in 10.7.4.1 10.7.4.1/31 fd00:7::1 fd00:7::1/127; do
  has_file "$address" "#! Masquerade = both"
  bad linerate client add one
  said "what is missing" "no network that clients' addresses could come from.*server set --pool"
  [[ $address == *:* ]] && pool=fd00:7::/64 to=2001:db8:3::2 || pool=10.7.4.0/24 to=198.51.100.2
  server set --pool $pool
  add one
  works one $to
  gone
done
has_file 10.7.4.0/31
no_server set --pool 10.7.4.0/24
said "the reason" "choose a network that begins before it"
gone

say "one family"
for family in 4 6; do
  [[ $family == 4 ]] && address=10.7.4.1/24 other=6 || { address=fd00:7::1/64 && other=4; }
  has_file $address "#! Masquerade = ipv$family"
  add one
  said "the family that goes past the tunnel" "IPv$other traffic of clients goes past the tunnel"
  advised
  add two
  if grep -q "past the tunnel" "$WORK/said"; then fail "both are in the tunnel: $(cat "$WORK/said")"; fi
  works two 198.51.100.2 2001:db8:3::2
  gone
done

say "name servers of a family for which the host has no default route"
has_file "10.7.4.1/24, fd00:7::1/64" "#! Masquerade = both" "#! ClientDNS = 198.51.100.2"
ip -n h1 route del default
add one
said "the unreachable name server" "clients cannot resolve names.*198.51.100.2.*server set --dns"
server set --dns 198.51.100.7
said "the unreachable name server" "clients cannot resolve names.*198.51.100.7"
server set --dns 2001:db8:3::2
if grep -q "cannot resolve names" "$WORK/said"; then fail "clients reach one of the name servers: $(cat "$WORK/said")"; fi
add two
if grep -q "cannot resolve names" "$WORK/said"; then fail "clients reach one of the name servers: $(cat "$WORK/said")"; fi
