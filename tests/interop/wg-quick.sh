#!/usr/bin/env bash
# timeout: 90
# The real wg-quick, with our daemon as its userspace implementation: up, use, reload, save and down; a full tunnel.
source "$(dirname "$0")/../netns/lib.sh"
ENGINE=$TUNNEL_DAEMON
source "$(dirname "$0")/../netns/tunnel-files.bash"
has_original || skip "wg-quick is not installed"

hosts_with_files
down() {
  good original down wg1
  is_gone wg1
  as_before "after wg-quick down"
}
remember

say "a plain tunnel"
tunnel_file wg1 10.9.0.2/32,fd09::2/128 "ListenPort = 50001" \
  "PostUp = echo %i is up >$WORK/hook" "PreDown = echo %i goes >$WORK/hook"
good original up wg1
expect "the hook" "wg1 is up" "$(cat "$WORK/hook")"
expect "MTU" 1420 "$(on h1 cat /sys/class/net/wg1/mtu)"
pings h1 10.9.0.2
pings h2 fd09::1

say "a reload without a gap: wg syncconf with what wg-quick strips"
(on h1 ping -n -q -i 0.02 -c 120 -W 3 10.9.0.2 >"$WORK/steady" || true) &
steady=$!
sleep 0.3
on h1 wg syncconf wg1 <(PATH=$WORK/bin:$PATH "$WORK/bin/wg-quick" strip wg1)
wait $steady
grep -q ' 0% packet loss' "$WORK/steady" || fail "pings during the reload: expected 0% packet loss, saw $(grep loss "$WORK/steady")"
good original save wg1
grep -q "^Endpoint = 192.0.2.2:50002" /etc/wireguard/wg1.conf || fail "the saved configuration lacks the endpoint"
down
expect "the hook" "wg1 goes" "$(cat "$WORK/hook")"

say "up and down again, three times"
for _ in 1 2 3; do
  good original up wg1
  pings h1 10.9.0.2
  down
done

say "everything through the tunnel"
on h2 wg set wg2 peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128
address h2 lo 203.0.113.7/32 2001:db8:7::7/128
ip -n h1 route add default via 192.0.2.2
remember
count h2 in inside iifname wg2 ip daddr 203.0.113.7
tunnel_file wg1 0.0.0.0/0,::/0
good original up wg1
pings h1 203.0.113.7
pings h1 2001:db8:7::7
expect "pings that came through the tunnel" 3 "$(counted h2 inside)"
pings h1 192.0.2.2 # the cable itself stays reachable beside it
expect "fwmark" 0xca6c "$(on h1 wg show wg1 fwmark)"
down
pings h1 203.0.113.7
expect "pings that came through the tunnel" 3 "$(counted h2 inside)"
