#!/usr/bin/env bash
# `linerate run` with the files that people have: one family or the other, endpoints that are names, several peers, further keys, lines behind #!.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/run.bash"

key h3
wg genpsk >"$WORK/shared.key"
daemon h2 wg3
on h2 wg set wg3 listen-port 50003 private-key "$WORK/h3.key" peer "$(public h1)" preshared-key "$WORK/shared.key" allowed-ips 10.8.0.1/32,fd08::1/128
wg_address h2 wg3 10.8.0.2/24 fd08::2/64
wait_for 5 "wg3 to open its port" listens_udp h2 50003
own_file /etc/hosts <<<"192.0.2.2 peer.example
2001:db8::2 peer6.example"

written() { # <TEXT : the file of the tunnel
  cat >"$config" && chmod 600 "$config" && chown 1000:1000 "$config"
}
one_peer() { # ADDRESS ALLOWED ENDPOINT [LINE OF [Interface]...]
  written <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = $1
$(printf '%s\n' "${@:4}")
[Peer]
PublicKey = $(public h2)
AllowedIPs = $2
Endpoint = $3
CONF
}
reaches() { # ADDRESS...
  local address
  for address; do
    run_status work -- ping -n -c 1 -W 5 "$address"
    expect "exit code of a ping to $address" 0 "$STATUS"
  done
}
no_network() { # ADDRESS : there is no route to it
  run_status work -- ping -n -c 1 -W 5 "$1"
  expect "exit code of a ping to $1" 2 "$STATUS" && said "[Nn]etwork is unreachable"
}
nothing_said() { # but for what ping says
  local said
  said=$(grep -v '^PING\|bytes\|^---\|^rtt\|packets' "$WORK/said" | xargs)
  expect "what the tool said" "" "$said"
}

say "IPv4 alone, by an endpoint with an IPv6 address"
one_peer 10.9.0.1/24 0.0.0.0/0 "[2001:db8::2]:50002" "DNS = 10.9.0.2"
reaches 10.9.0.2 && nothing_said
no_network fd09::2

say "IPv6 alone, by an endpoint with an IPv4 address"
one_peer "fd09::1/64, fe80::1/64" ::/0 192.0.2.2:50002 "DNS = fd09::2"
reaches fd09::2
no_network 10.9.0.2
expect "name servers" "nameserver fd09::2" "$(run work -- grep -v '^#' /etc/resolv.conf)"

say "endpoints that are names, which the host looks up"
for name in peer.example peer6.example; do
  one_peer 10.9.0.1/24 0.0.0.0/0 $name:50002 "DNS = 10.9.0.2"
  reaches 10.9.0.2
done

say "two peers, one with a preshared key; both keys in files that the user alone may read"
mkdir -p "$WORK/home/keys"
cp "$WORK/h1.key" "$WORK/shared.key" "$WORK/home/keys/"
chown -R 1000:1000 "$WORK/home" && chmod 700 "$WORK/home" "$WORK/home/keys" && chmod 400 "$WORK/home/keys"/*
written <<CONF
[Interface]
#! PrivateKeyFile = $WORK/home/keys/h1.key
#! KillSwitch = true
#! Spin = 50
Address = 10.9.0.1/24, fd09::1/64, 10.8.0.1/24, fd08::1/64
DNS = 10.9.0.2
MTU = 1300
[Peer]
PublicKey = $(public h2)
AllowedIPs = 10.9.0.0/24, fd09::/64
Endpoint = 192.0.2.2:50002
PersistentKeepalive = 25
[Peer]
PublicKey = $(public h3)
#! PresharedKeyFile = $WORK/home/keys/shared.key
AllowedIPs = 10.8.0.0/24, fd08::/64
Endpoint = peer.example:50003
CONF
reaches 10.9.0.2 fd09::2 10.8.0.2 fd08::2 && nothing_said
no_network 192.0.2.2
expect "MTU" 1300 "$(run work -- ip -o link show work | grep -o 'mtu [0-9]*' | cut -d ' ' -f 2)"
"${as_user[@]}" "$tool" run work -- sleep 100 &
command=$!
wait_for 10 "sleep" pgrep -u 1000 -x sleep
one_daemon() { [[ $(daemons | wc -l) == 1 ]]; }
wait_for 10 "the daemons of the commands before to end" one_daemon
expect "LINERATE_SPIN of the daemon" 50 "$(tr '\0' '\n' <"/proc/$(daemons)/environ" | sed -n 's/^LINERATE_SPIN=//p')"
kill $command
wait $command || true
rm -r "$WORK/home/keys"

say "a file that is another's, and one that everybody may read"
tunnel_file "DNS = 10.9.0.2"
chown 0:0 "$config"
run_status work -- true
expect "exit code" 125 "$STATUS" && said "work.conf.*[Pp]ermission denied"
chown 1000:1000 "$config"
chmod 644 "$config"
run_status work -- true
expect "exit code" 0 "$STATUS" && said "every user can read .*work.conf; run chmod 600"
chmod 600 "$config"

say "root has a tunnel of that kind, too"
(umask 077 && cp "$config" "$WORK/work.conf")
status nsenter --net=/run/netns/h1 "$tool" run "$WORK/work.conf" -- ping -n -c 1 -W 5 10.9.0.2
expect "exit code of a ping" 0 "$STATUS"
stop_daemon wg3
nothing_left
