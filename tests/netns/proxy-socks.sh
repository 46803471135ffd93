#!/usr/bin/env bash
# timeout: 150
# A SOCKS5 proxy out of a tunnel: names, addresses of both families, passwords, datagrams; what fails, by its number.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/proxy.bash"
far
# Segments to this port get no answer.
block h2 in tcp dport 82

for stack in "${stacks[@]}"; do
  say "$stack: connections"
  : >"$WORK/names"
  start "$stack" '[Socks5]' 'BindAddress = 127.0.0.1:1080' '[Socks5]' 'BindAddress = 127.0.0.1:1081' 'Username = peter' \
    'Password = hunter123'
  expect "by name" "GET /a HTTP/1.1" "$(get -x socks5h://127.0.0.1:1080 http://host.example/a | head -n 1 | tr -d '\r')"
  (($(asked host.example) > 0)) || fail "the server in the tunnel was not asked"
  for host in 10.9.0.2 '[fd09::2]'; do
    expect "$host" 3000000 "$(get -x socks5h://127.0.0.1:1080 "http://$host/bytes/3000000" | wc -c)"
  done
  head -c 3000000 /dev/urandom >"$WORK/file"
  expect "what was sent and came back" "$(sha256sum <"$WORK/file")" \
    "$(get -x socks5h://127.0.0.1:1080 -T "$WORK/file" -H Expect: http://10.9.0.2/ | tail -c 3000000 | sha256sum)"

  say "$stack: passwords"
  expect "the right one" 200 "$(code -x socks5h://peter:hunter123@127.0.0.1:1081 http://10.9.0.2/)"
  for login in peter:wrong wrong:hunter123 peter: ''; do
    expect "curl's code for \`$login'" 97 "$(failed -x "socks5h://${login:+$login@}127.0.0.1:1081" http://10.9.0.2/)"
  done

  say "$stack: what fails"
  expect "a target that refuses" 5 "$(client reply :1080 10.9.0.2 81)"
  [[ $stack != theirs ]] || { stop && continue; }
  expect "a name that there is none of" 4 "$(client reply :1080 none.example 80)"
  expect "an address that no tunnel leads to" 2 "$(client reply :1080 127.0.0.1 80)"
  client reply :1080 10.9.0.2 82 >"$WORK/silent" &
  silent=$!

  say "$stack: datagrams"
  expect "echoes" "200 datagrams of 64" "$(client udp :1080 10.9.0.2 7 200 64)"
  expect "echoes of a full packet" "200 datagrams of 1372" "$(client udp :1080 fd09::2 7 200 1372)"
  expect "a name asked by datagram" 10.9.0.2 "$(client name :1080 10.9.0.2 elsewhere.example)"
  expect "and with the server's own name" 10.9.0.2 "$(client name :1080 host.example elsewhere.example)"

  wait "$silent" || fail "no reply about a target that is silent"
  expect "a target that does not answer" 6 "$(cat "$WORK/silent")"
  stop
done
