#!/usr/bin/env bash
# timeout: 120
# A proxy with several peers and an MTU of its own: each target is reached by its peer, one that is silent disturbs nobody, datagrams as large as QUIC's pass.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/proxy.bash"
key h3 h4
daemon h2 wg3
on h2 wg set wg3 listen-port 50003 private-key "$WORK/h3.key" peer "$(public h1)" allowed-ips 10.8.0.1/32,fd08::1/128
wg_address h2 wg3 10.8.0.2/24 fd08::2/64
wait_for 5 "wg3 to open its port" listens_udp h2 50003
far
ip netns exec h2 python3 "$REPO/tests/netns/proxy-far.py" "$WORK/home" 10.8.0.2 fd08::2 >>"$SCENARIO_LOGS/far.log" 2>&1 &
wait_for 20 "the servers of the other peer" test -e "$WORK/home/far-is-up"

# The last one has nobody behind it.
peers() {
  sed -i -e 's/^Address.*/&, 10.8.0.1\/24, fd08::1\/64\nMTU = 1280/' -e 's/^AllowedIPs.*/AllowedIPs = 10.9.0.0\/24, fd09::\/64/' "$config"
  cat >>"$config" <<CONF
[Peer]
PublicKey = $(public h3)
AllowedIPs = 10.8.0.0/24, fd08::/64
Endpoint = [2001:db8::2]:50003
[Peer]
PublicKey = $(public h4)
AllowedIPs = 10.7.0.0/24
Endpoint = 192.0.2.2:50004
CONF
}
with=peers
for stack in "${stacks[@]}"; do
  say "$stack: each by its peer"
  start "$stack" '[Socks5]' 'BindAddress = 127.0.0.1:1080'
  for host in 10.9.0.2 '[fd09::2]' 10.8.0.2 '[fd08::2]'; do
    expect "$host" 3000000 "$(get -x socks5h://127.0.0.1:1080 "http://$host/bytes/3000000" | wc -c)"
  done
  [[ $stack != theirs ]] || { stop && continue; }
  client reply :1080 10.7.0.2 80 >"$WORK/silent" &
  silent=$!
  expect "an address that no peer has" 4 "$(client reply :1080 10.6.0.2 80)"

  say "$stack: datagrams up to the MTU: 1280, less the headers of IPv6 and UDP"
  for host in 10.9.0.2 fd08::2; do
    expect "$host" "50 datagrams of 1232" "$(client udp :1080 "$host" 7 50 1232)"
  done
  expect "the other peer meanwhile" 300000 "$(get -x socks5h://127.0.0.1:1080 http://10.8.0.2/bytes/300000 | wc -c)"
  wait "$silent" || fail "no reply about a peer that is silent"
  expect "a peer that is silent" 6 "$(cat "$WORK/silent")"
  stop
done
