#!/usr/bin/env bash
# A `reload` that cannot be leaves everything as it was and says why: the port is another program's, the tunnel is another
# file's, the way up was ended. What it changes of the device itself, it says.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need nc

hosts_with_files
remember
file() { # PORT ADDRESS [LINE...]
  tunnel_file wg1 10.9.0.2/32,fd09::2/128 "ListenPort = $1" "${@:3}"
  sed -i "s|^Address = .*|Address = $2, fd09::1/64|" /etc/wireguard/wg1.conf
}
all() { state && on h1 wg showconf wg1 && on h1 wg show wg1 fwmark; }
unchanged() { # WHAT : since all was kept in $before
  [[ $(all) == "$before" ]] || fail "$1: it has changed: $(diff <(echo "$before") <(all) | tr '\n' ' ')"
  say "$1: nothing has changed"
}
file 50001 10.9.0.1/24
good linerate up wg1
pings h1 10.9.0.2
before=$(all)

say "the port is another program's"
ip netns exec h1 nc -u -l 0.0.0.0 50011 >/dev/null </dev/null &
other=$!
wait_for 5 "another program on port 50011" listens_udp h1 50011
file 50011 10.9.7.1/24 "MTU = 1300" "DNS = 192.0.2.53"
bad linerate reload wg1
said "the port" "UDP port 50011 is already in use; choose another ListenPort"
unchanged "a port that is taken"
pings h1 10.9.0.2
kill $other
wait $other 2>/dev/null || true
wait_for 5 "the port to be free" eval "! listens_udp h1 50011"
good linerate reload wg1
said "the same file, when the port is free" "steps taken on the host; it listens on port 50011"
expect "the port" 50011 "$(on h1 wg show wg1 listen-port)"
file 50001 10.9.0.1/24
good linerate reload wg1

say "what a reload changes of the device itself"
file 50012 10.9.0.1/24
good linerate reload wg1
said "the port" "wg1: it listens on port 50012$"
file 50012 10.9.0.1/24 "FwMark = 0x2a"
good linerate reload wg1
said "the mark" "it marks its datagrams with 0x2a$"
expect "the mark" 0x2a "$(on h1 wg show wg1 fwmark)"
file 50012 10.9.0.1/24 "FwMark = off"
good linerate reload wg1
said "no mark" "it no longer marks its datagrams$"
cp "$WORK/h1.key" "$WORK/first.key"
key h1
on h2 wg set wg2 peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128
file 50012 10.9.0.1/24 "FwMark = off"
good linerate reload wg1
said "the key" "wg1: it has another private key$"
if grep -qF -e "$(cat "$WORK/h1.key")" -e "$(cat "$WORK/first.key")" "$WORK/said"; then fail "a key is said"; fi
pings h1 10.9.0.2
good linerate reload wg1
said "again" "wg1: nothing has changed$"
good linerate down wg1
is_gone wg1
as_before "down"

say "the tunnel of another file"
mkdir "$WORK/elsewhere"
file 50001 10.9.0.1/24
cp -p /etc/wireguard/wg1.conf "$WORK/elsewhere"
good linerate up "$WORK/elsewhere/wg1.conf"
file 50002 10.9.7.1/24
before=$(all)
for name in wg1 /etc/wireguard/wg1.conf; do
  bad linerate reload $name
  said "reload $name" "wg1 was brought up from $WORK/elsewhere/wg1.conf, and this is /etc/wireguard/wg1.conf: .linerate reload $WORK/elsewhere/wg1.conf. "
  unchanged "reload $name"
done
sed -i s/50001/50003/ "$WORK/elsewhere/wg1.conf"
good linerate reload "$WORK/elsewhere/wg1.conf"
expect "the port" 50003 "$(on h1 wg show wg1 listen-port)"
mv "$WORK/elsewhere/wg1.conf" /etc/wireguard/wg1.conf
good linerate reload wg1
said "its file, moved" "nothing has changed"
good linerate down wg1
is_gone wg1
as_before "down"

say "a file behind a link that leads elsewhere by now"
mv /etc/wireguard/wg1.conf "$WORK/elsewhere/first.conf"
ln -s "$WORK/elsewhere/first.conf" /etc/wireguard/wg1.conf
good linerate up wg1
sed s/50003/50004/ "$WORK/elsewhere/first.conf" >"$WORK/elsewhere/second.conf"
chmod 600 "$WORK/elsewhere/second.conf"
ln -sf "$WORK/elsewhere/second.conf" /etc/wireguard/wg1.conf
good linerate reload wg1
expect "the port" 50004 "$(on h1 wg show wg1 listen-port)"
good linerate save wg1
good linerate down wg1
is_gone wg1
as_before "down"
rm /etc/wireguard/wg1.conf
file 50001 10.9.0.1/24

say "the way up was ended"
good linerate up wg1
sed -i 's/"complete": true/"complete": false/' /run/linerate/wg1.json
before=$(all)
bad linerate reload wg1
said "a tunnel that is not all up" "wg1 is only partly up: .* .linerate down wg1. cleans up"
unchanged "a tunnel that is not all up"
good linerate down wg1
is_gone wg1
as_before "down"
