#!/usr/bin/env bash
# What the UAPI socket answers, by number; and that a refused request changes nothing at all.
source "$(dirname "$0")/lib.sh"
need nc

two_hosts
tunnel v4
pings h1 10.9.0.2
h2=$(public h2 | hex)
new=$(wg genkey | wg pubkey | hex)
state() { on h1 wg showconf wg1 | sha256sum; }

answer() { # WHAT ERRNO LINES... : the request made of these lines gets this errno, and changes nothing if that is not 0
  local what=$1 errno=$2 before after seen
  shift 2
  before=$(state)
  seen=$({ printf '%s\n' "$@" && echo; } | uapi wg1 | awk -F = '/^errno=/ { print $2; exit }')
  expect "errno for $what" "$errno" "$seen"
  after=$(state)
  [[ $errno == 0 || $before == "$after" ]] || fail "$what: refused, but something changed: $(on h1 wg showconf wg1)"
}

answer "an empty set" 0 set=1
answer "an unknown key of the device" -22 set=1 listen_port=50009 colour=red
answer "a line without =" -71 set=1 listen_port=50009 nonsense
answer "a port that is no number" -22 set=1 fwmark=7 listen_port=abc
answer "a port too large" -22 set=1 fwmark=7 listen_port=65536
answer "a mark in hexadecimal" -22 set=1 listen_port=50009 fwmark=0x10
answer "replace_peers=false" -22 set=1 listen_port=50009 replace_peers=false
answer "a private key too short" -22 set=1 listen_port=50009 private_key=00ff
answer "a private key that is not hexadecimal" -22 set=1 listen_port=50009 "private_key=$(printf 'zz%.0s' {1..32})"
answer "an allowed IP without a mask" -22 set=1 "public_key=$new" allowed_ip=10.9.0.9
answer "an allowed IP with too long a mask" -22 set=1 "public_key=$new" allowed_ip=10.9.0.9/33
answer "an endpoint by name" -22 set=1 "public_key=$new" endpoint=localhost:51820
answer "a keepalive too long" -22 set=1 "public_key=$new" persistent_keepalive_interval=65536
answer "another protocol version" -22 set=1 "public_key=$new" protocol_version=2
answer "an unknown key of a peer" -22 set=1 "public_key=$new" allowed_ip=10.9.0.9/32 colour=red
answer "remove=false" -22 set=1 "public_key=$new" remove=false
answer "a preshared key too short" -22 set=1 "public_key=$new" preshared_key=00
answer "a bad line after everything was replaced" -22 set=1 replace_peers=true "public_key=$new" allowed_ip=10.9.0.9/32 colour=red
pings h1 10.9.0.2

say "the order of lines inside a peer, removal, update_only"
answer "update_only of a peer that is not there" 0 set=1 "public_key=$new" update_only=true allowed_ip=10.9.0.9/32
expect "peers" 1 "$(on h1 wg show wg1 peers | wc -l)"
answer "removal of a peer that is not there" 0 set=1 "public_key=$new" remove=true
answer "a new peer" 0 set=1 "public_key=$new" allowed_ip=10.9.0.9/32 'endpoint=[2001:db8::9]:9' persistent_keepalive_interval=0 protocol_version=1
answer "one more allowed IP" 0 set=1 "public_key=$new" allowed_ip=10.9.0.10/32
expect "peers" 2 "$(on h1 wg show wg1 peers | wc -l)"
grep -q '10.9.0.9/32.*10.9.0.10/32\|10.9.0.10/32.*10.9.0.9/32' <<<"$(on h1 wg show wg1 allowed-ips)" || fail "allowed IPs are not added: $(on h1 wg show wg1 allowed-ips)"
answer "its removal" 0 set=1 "public_key=${new^^}" remove=true
expect "peers" 1 "$(on h1 wg show wg1 peers | wc -l)"

say "a get, field by field and in order"
printf 'get=1\n\n' | uapi wg1 | grep -v '^$' >"$WORK/get"
expect "fields of a get" "private_key listen_port public_key preshared_key protocol_version endpoint last_handshake_time_sec last_handshake_time_nsec tx_bytes rx_bytes persistent_keepalive_interval allowed_ip allowed_ip errno" \
  "$(cut -d = -f 1 "$WORK/get" | tr '\n' ' ' | sed 's/ $//')"
grep -qx "public_key=$h2" "$WORK/get" || fail "the get does not show the peer's key in lower-case hexadecimal"
answer "a get with something behind it" -22 get=1 colour=red

say "an unknown request ends the connection, and only that"
expect "the answer to nonsense" "" "$(printf 'hello=1\n\n' | uapi wg1)"
expect "the answer to CR LF" "" "$(printf 'set=1\r\n\r\n' | uapi wg1)"

say "requests of a megabyte, good and bad"
big() { awk -v key="$new" 'BEGIN { print "set=1\npublic_key=" key; for (i = 0; i < 40000; i++) printf "allowed_ip=10.%d.%d.%d/32\n", 100 + int(i / 65536), int(i / 256) % 256, i % 256 }'; }
expect "errno for a large request whose last line is bad" errno=-22 "$({ big && printf 'colour=red\n\n'; } | uapi wg1 | tr -d '\n')"
expect "peers" 1 "$(on h1 wg show wg1 peers | wc -l)"
expect "errno for a large request" errno=0 "$({ big && echo; } | uapi wg1 | tr -d '\n')"
expect "peers" 2 "$(on h1 wg show wg1 peers | wc -l)"

say "a line without end is cut off, not collected"
memory=$(rss_kb "${PID[wg1]}")
head -c 100000000 /dev/zero | tr '\0' 'a' | timeout 10 nc -NU /run/wireguard/wg1.sock >/dev/null 2>&1 || true
expect_at_most "kilobytes that the daemon grew by" 40000 $(($(rss_kb "${PID[wg1]}") - memory))
pings h1 10.9.0.2
