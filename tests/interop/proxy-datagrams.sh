#!/usr/bin/env bash
# timeout: 150
# Other programs' datagrams through a proxy, by UDP ASSOCIATE and by forwards: dig's questions, and QUIC connections of aioquic.
# Neither speaks SOCKS5, so that what they send to a port here is sent on by an association (proxy-client.py bridge).
source "$(dirname "$0")/../netns/lib.sh"
quic=$REPO/target/peers/bin/quic
[[ -x $quic ]] || skip "there is no QUIC (tests/interop/prepare aioquic)"
source "$(dirname "$0")/../netns/proxy.bash"
need dig openssl tcpdump
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=host.example \
  -addext subjectAltName=DNS:host.example -keyout "$WORK/far.key" -out "$WORK/far.crt" 2>/dev/null
far
ip netns exec h2 "$quic" serve "$WORK/far.crt" "$WORK/far.key" 4433 10.9.0.2 fd09::2 >>"$SCENARIO_LOGS/quic.log" 2>&1 &
PID[quic]=$!
wait_for 20 "the server of QUIC" listens_udp h2 4433
capture

bridge() { # NAME PORT HOST PORT : what goes to the first port here goes to the other by an association
  ip netns exec h1 "${client[@]}" bridge 127.0.0.1:1080 "${@:2}" >>"$SCENARIO_LOGS/bridge.log" 2>&1 &
  PID[$1]=$!
  wait_for 20 "the bridge at port $2" listens_udp h1 "$2"
}
ask() { on h1 dig @127.0.0.1 -p "$1" +short +tries=2 +time=10 "${@:2}" 2>&1; } # PORT ARGUMENT...

for stack in "${stacks[@]}"; do
  start "$stack" '[Socks5]' 'BindAddress = 127.0.0.1:1080' \
    '[UDPProxyTunnel]' 'BindAddress = 127.0.0.1:2053' 'Target = 10.9.0.2:53' \
    '[TCPClientTunnel]' 'BindAddress = 127.0.0.1:2053' 'Target = 10.9.0.2:53' \
    '[UDPProxyTunnel]' 'BindAddress = 127.0.0.1:2433' 'Target = host.example:4433'
  # Those of QUIC lead to a name, which the proxy looks up.
  bridge names 3053 10.9.0.2 53
  bridge quic-by-association 3433 host.example 4433
  : >"$WORK/names"

  say "$stack: dig"
  for port in 2053 3053; do
    expect "an address, by port $port" 10.9.0.2 "$(ask $port one.example A)"
    expect "one of IPv6, by port $port" fd09::2 "$(ask $port "two-$port.example" AAAA)"
    expect "no such name, by port $port" NXDOMAIN \
      "$(on h1 dig @127.0.0.1 -p $port +time=10 none.example | sed -n 's/.*status: \([A-Z]*\),.*/\1/p')"
    expect "questions about a name, by port $port" 1 "$(asked "two-$port.example")"
  done
  expect "a long answer, which dig asks for again by TCP" 10.9.0.2 "$(ask 2053 big.example A | tail -n 1)"
  expect "questions about it" 2 "$(asked big.example)"

  say "$stack: QUIC"
  for port in 2433 3433; do
    expect "a stream there and back, by port $port" "digest what was sent" \
      "$(on h1 timeout 100 "$quic" ask "$WORK/far.crt" $port 1000000 2>&1)"
  done

  nothing_escaped
  for name in names quic-by-association; do kill "${PID[$name]}" && wait_for 10 "$name to end" gone "$name"; done
  stop
done

say "a far end that is not the certificate's is none that QUIC talks to"
start "${stacks[0]}" '[UDPProxyTunnel]' 'BindAddress = 127.0.0.1:2433' 'Target = 10.9.0.2:4433'
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=host.example \
  -addext subjectAltName=DNS:host.example -keyout "$WORK/other.key" -out "$WORK/other.crt" 2>/dev/null
expect_failure "QUIC with another certificate" on h1 timeout 60 "$quic" ask "$WORK/other.crt" 2433 16
nothing_escaped
stop
