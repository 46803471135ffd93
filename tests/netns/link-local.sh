#!/usr/bin/env bash
# timeout: 200
# A cable without any address but the link-local ones: endpoints have a zone (fe80::2%e2), which is shown, saved,
# followed when the peer moves, and found again under its name when the interface was deleted and made anew.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/faults.bash"
need jq

# Addresses of our own choice, so that the interface has the same one when it is made anew.
plug() {
  ip link add e1 netns h1 type veth peer name e2 netns h2
  ip -n h1 link set e1 addrgenmode none
  ip -n h2 link set e2 addrgenmode none
  ip -n h1 link set e1 up
  ip -n h2 link set e2 up
  address h1 e1 fe80::1/64
  address h2 e2 fe80::2/64
}
index() { on "$1" cat "/sys/class/net/$2/ifindex"; } # HOST DEVICE
host h1 h2
# So that the two ends have different indices for the cable, and neither index exists at the other end.
ip -n h1 link add x1 type veth peer name x2
plug
tunnel none
h1_key=$(public h1) h2_key=$(public h2)

say "the forms that wg takes"
on h1 wg set wg1 peer "$h2_key" endpoint "[fe80::2%e1]:50002"
expect "the endpoint, as wg shows it" "[fe80::2%e1]:50002" "$(endpoint h1 wg1)"
on h1 wg set wg1 peer "$h2_key" endpoint "[fe80::3%$(index h1 e1)]:50002"
expect "one by the index of its interface" "[fe80::3%e1]:50002" "$(endpoint h1 wg1)"
on h1 "$LINERATE" wg set wg1 peer "$h2_key" endpoint "[fe80::4%e1]:50002"
expect "one by our own wg" "[fe80::4%e1]:50002" "$(endpoint h1 wg1)"
printf '[Peer]\nPublicKey = %s\nEndpoint = fe80::2%%e1:50002\nAllowedIPs = 10.9.0.2/32, fd09::2/128\n' "$h2_key" >"$WORK/peer.conf"
on h1 wg addconf wg1 "$WORK/peer.conf"
expect "one without brackets, from a file" "[fe80::2%e1]:50002" "$(endpoint h1 wg1)"
on h1 "$LINERATE" wg addconf wg1 "$WORK/peer.conf"
expect "the same by our own wg" "[fe80::2%e1]:50002" "$(endpoint h1 wg1)"
asked() { printf 'set=1\npublic_key=%s\nendpoint=%s\n\n' "$(base64 -d <<<"$h2_key" | od -An -tx1 -v | tr -d ' \n')" "$1" | on h1 nc -NU -q 1 /run/wireguard/wg1.sock; }
expect "a request by hand" "errno=0" "$(asked '[fe80::2%e1]:50002')"
expect "a request with a zone that is not there" "errno=-22" "$(asked '[fe80::2%none]:50002')"
expect "the endpoint is as it was" "[fe80::2%e1]:50002" "$(endpoint h1 wg1)"

say "it carries, and the other end learns where we are"
pings h1 10.9.0.2
expect "endpoint of h1 on h2" "[fe80::1%e2]:50001" "$(endpoint h2 wg2)"
pings h2 fd09::1

say "it is shown as wg shows it"
shows() { [[ $1 == *"[fe80::2%e1]:50002"* ]] || fail "$2 does not show the endpoint: $1"; }
shows "$(on h1 "$LINERATE" show wg1)" "linerate show"
shows "$(on h1 "$LINERATE" show wg1 --json)" "linerate show --json"
shows "$(on h1 "$LINERATE" status wg1)" "linerate status"
shows "$(on h1 "$LINERATE" status wg1 --json)" "linerate status --json"
diff <(on h1 wg showconf wg1) <(on h1 "$LINERATE" wg showconf wg1) || fail "showconf differs from the original's"

# What is sent before the daemon has noticed the change leaves from the removed address.
heard() { wait_for 20 "an answer to $1" on "$1" ping -n -q -c 1 -W 1 "$2"; } # HOST ADDRESS
say "the peer moves, to another port and to another address"
on h2 wg set wg2 listen-port 50003
pings h2 10.9.0.1
expect "endpoint of h2 after a change of port" "[fe80::2%e1]:50003" "$(endpoint h1 wg1)"
address h2 e2 fe80::22/64
ip -n h2 addr del fe80::2/64 dev e2
heard h2 10.9.0.1
expect "endpoint of h2 after a change of address" "[fe80::22%e1]:50003" "$(endpoint h1 wg1)"
pings h1 10.9.0.2
on h2 wg set wg2 listen-port 50002
address h2 e2 fe80::2/64
ip -n h2 addr del fe80::22/64 dev e2
heard h2 10.9.0.1
expect "endpoint of h2, as it was" "[fe80::2%e1]:50002" "$(endpoint h1 wg1)"

say "the cable is pulled, and another has its name: one end was told its endpoint, the other heard it"
was=$(index h1 e1)
ip -n h1 link delete e1
expect "an endpoint whose interface is gone has its index" "[fe80::2%$was]:50002" "$(endpoint h1 wg1)"
no_ping h1 10.9.0.2
ip -n h1 link add x3 type veth peer name x4
plug
expect_at_least "the index of the new one" $((was + 1)) "$(index h1 e1)"
wait_for 20 "the endpoint to follow the name on h1" eval '[[ $(endpoint h1 wg1) == "[fe80::2%e1]:50002" ]]'
wait_for 20 "the endpoint to follow the name on h2" eval '[[ $(endpoint h2 wg2) == "[fe80::1%e2]:50001" ]]'
wait_for 20 "traffic by the new cable" carries
pings h2 10.9.0.1

say "it comes back under another name, and is then given its own"
ip -n h1 link delete e1
ip link add f1 netns h1 type veth peer name e2 netns h2
ip -n h1 link set f1 addrgenmode none
ip -n h2 link set e2 addrgenmode none up
address h2 e2 fe80::2/64
ip -n h1 link set f1 name e1
ip -n h1 link set e1 up
address h1 e1 fe80::1/64
wait_for 20 "traffic by the interface that was renamed" carries
expect "the endpoint" "[fe80::2%e1]:50002" "$(endpoint h1 wg1)"
ip -n h1 link set e1 down
ip -n h1 link set e1 name g1
ip -n h1 link set g1 up
address h1 g1 fe80::1/64
wait_for 20 "traffic by the interface that has another name now" carries
expect "the endpoint" "[fe80::2%g1]:50002" "$(endpoint h1 wg1)"
stop_daemon wg1

say "from a file: brought up, saved, and left alone while the interface is away"
ip -n h1 link set g1 down
ip -n h1 link set g1 name e1
ip -n h1 link set e1 up
address h1 e1 fe80::1/64
for ENDPOINT in "[fe80::2%e1]:50002" "fe80::2%e1:50002"; do
  tunnel_file wg1 10.9.0.2/32,fd09::2/128 "ListenPort = 50001"
  for who in wg-quick linerate; do
    cp -p /etc/wireguard/wg1.conf "$WORK/before.conf"
    good $who up wg1
    wait_for 20 "$who: the endpoint" eval '[[ $(endpoint h1 wg1) == "[fe80::2%e1]:50002" ]]'
    pings h1 10.9.0.2
    good $who save wg1
    expect "$who: what has changed without a change" "" "$(diff "$WORK/before.conf" /etc/wireguard/wg1.conf || true)"
    good $who down wg1
    is_gone wg1
  done
done
good linerate up wg1
on h1 wg set wg1 peer "$h2_key" endpoint "[fe80::2%e1]:50009" persistent-keepalive 25
good linerate save wg1
expect "the endpoint in the file" "Endpoint = [fe80::2%e1]:50009" "$(grep ^Endpoint /etc/wireguard/wg1.conf)"
ip -n h1 link delete e1
on h1 wg set wg1 peer "$h2_key" persistent-keepalive 24
good linerate save wg1
expect "what else was saved without the interface" "PersistentKeepalive = 24" "$(grep ^Persistent /etc/wireguard/wg1.conf)"
expect "the endpoint in the file without the interface" "Endpoint = [fe80::2%e1]:50009" "$(grep ^Endpoint /etc/wireguard/wg1.conf)"
good linerate down wg1
is_gone wg1

say "brought up before the interface is there"
sed -i 's/50009/50002/' /etc/wireguard/wg1.conf
good linerate up wg1
said "up" "fe80::2%e1:50002: no address yet"
expect "its endpoint" "(none)" "$(endpoint h1 wg1)"
plug
wait_for 40 "traffic once there is one" carries
expect "the endpoint" "[fe80::2%e1]:50002" "$(endpoint h1 wg1)"
