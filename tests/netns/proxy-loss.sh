#!/usr/bin/env bash
# timeout: 150
# A proxy over a line that loses one datagram in two hundred: both directions go on, and what arrives is what was sent.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/proxy.bash"
far
head -c 3000000 /dev/urandom >"$WORK/file"

for stack in "${stacks[@]}"; do
  start "$stack" '[Socks5]' 'BindAddress = 127.0.0.1:1080'
  expect "before" 200 "$(code -x socks5h://127.0.0.1:1080 http://10.9.0.2/)"
  rule h2 in udp dport 50002 numgen random mod 200 '<' 1 drop
  rule h2 out udp sport 50002 numgen random mod 200 '<' 1 drop
  for _ in 1 2 3; do
    expect "$stack: what went to the other end and back" "$(sha256sum <"$WORK/file")" \
      "$(get --max-time 60 -x socks5h://127.0.0.1:1080 -T "$WORK/file" -H Expect: http://10.9.0.2/ | tail -c 3000000 | sha256sum)"
  done
  unblock h2
  stop
done
