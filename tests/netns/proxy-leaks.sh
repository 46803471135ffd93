#!/usr/bin/env bash
# timeout: 180
# What a proxy sends leaves by the tunnel or not at all: names, streams, datagrams; with a silent peer, without DNS, when it is killed.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/proxy.bash"
need tcpdump
far
capture
services=('[Socks5]' 'BindAddress = 127.0.0.1:1080' '[http]' 'BindAddress = 127.0.0.1:8080' '[TCPClientTunnel]' 'BindAddress = 127.0.0.1:2080'
  'Target = host.example:80' '[UDPProxyTunnel]' 'BindAddress = 127.0.0.1:2053' 'Target = host.example:53')
# Each way to ask for something that must not leave outside; the addresses are of h2, which answers outside as well.
asks() { # SECONDS : in each way; the client's own failures do not count
  local ways=() way
  on h1 curl -s --max-time "$1" -o /dev/null -x socks5h://127.0.0.1:1080 http://leaked.example/ & ways+=($!)
  on h1 curl -s --max-time "$1" -o /dev/null -x socks5h://127.0.0.1:1080 http://192.0.2.2/ & ways+=($!)
  on h1 curl -s --max-time "$1" -o /dev/null -x socks5h://127.0.0.1:1080 'http://[2001:db8::2]/' & ways+=($!)
  on h1 curl -s --max-time "$1" -o /dev/null -x http://127.0.0.1:8080 http://leaked.example/ & ways+=($!)
  on h1 curl -s --max-time "$1" -o /dev/null -x http://127.0.0.1:8080 https://192.0.2.2/ & ways+=($!)
  on h1 curl -s --max-time "$1" -o /dev/null http://127.0.0.1:2080/ & ways+=($!)
  if [[ $stack != theirs ]]; then # wireproxy ends at these
    on h1 timeout "$1" "${client[@]}" name :1080 192.0.2.2 leaked.example >/dev/null 2>&1 & ways+=($!)
    on h1 timeout "$1" "${client[@]}" name :1080 leaked.example leaked.example >/dev/null 2>&1 & ways+=($!)
  fi
  head -c 64 /dev/zero | datagram h1 127.0.0.1 2053 2>/dev/null & ways+=($!)
  for way in "${ways[@]}"; do wait "$way" || true; done
}

for stack in "${stacks[@]}"; do
  say "$stack: while the tunnel is up"
  start "$stack" "${services[@]}"
  expect "by name" 200 "$(code -x socks5h://127.0.0.1:1080 http://host.example/)"
  expect "a stream" 20000000 "$(get -x socks5h://127.0.0.1:1080 http://10.9.0.2/bytes/20000000 | wc -c)"
  asks 3
  nothing_escaped

  say "$stack: the peer is silent"
  block h2 in udp dport 50002
  asks 5
  nothing_escaped
  unblock h2
  wait_for 20 "the tunnel to carry again" on h1 curl -sf --max-time 5 -o /dev/null -x socks5h://127.0.0.1:1080 http://10.9.0.2/
  nothing_escaped

  say "$stack: the proxy is killed while it carries"
  on h1 curl -s --max-time 60 -o /dev/null -x socks5h://127.0.0.1:1080 http://10.9.0.2/bytes/2000000000 &
  stream=$!
  sleep 0.3
  kill -KILL "${PID[proxy]}"
  wait $stream && fail "the stream was not cut" || true
  wait_for 10 "all of the proxy to end" bash -c '! pgrep -u 1000'
  asks 2
  nothing_escaped
  [[ $stack != theirs ]] || continue

  say "$stack: no name server"
  DNS='' start "$stack" "${services[@]}"
  expect "an address" 200 "$(code -x socks5h://127.0.0.1:1080 http://10.9.0.2/)"
  expect "a name" 502 "$(code -x http://127.0.0.1:8080 http://leaked.example/)"
  get -x http://127.0.0.1:8080 http://leaked.example/ | grep -q 'DNS = ' || fail "it does not say which line is missing"
  asks 3
  nothing_escaped
  stop
done

say "the host's resolver, if the file asks for that"
ours=${stacks[0]}
[[ $ours != theirs ]] || exit 0
DNS='' start "$ours" '[Proxy]' 'Names = system' "${services[@]}" 2>/dev/null || true
alive proxy || fail "the proxy has ended: $(tail -n 3 "$SCENARIO_LOGS/proxy.log")"
on h1 curl -s --max-time 3 -o /dev/null -x socks5h://127.0.0.1:1080 http://meant.example/ || true
wait_for 10 "the question to be seen: the capture can see one" bash -c "tcpdump -n -r '$WORK/capture' 2>/dev/null | grep -q meant.example"
stop
