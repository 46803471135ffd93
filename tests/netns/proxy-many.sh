#!/usr/bin/env bash
# heavy: 10,000 connections
# timeout: 300
# Near to 10,000 connections through a proxy, some of them stuck in either direction; memory stays within the bound that is stated.
#
# Environment:
#   CONNECTIONS   how many are idle (9600, or what there are descriptors for)
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/proxy.bash"
ulimit -n 32768 2>/dev/null || ulimit -n "$(ulimit -Hn)"
# With the kernel's stack each takes two descriptors of the proxy.
most=$((($(ulimit -n) - 1000) / 2))
connections=${CONNECTIONS:-9600}
((connections <= most)) || connections=$most
far
socks=('[Socks5]' 'BindAddress = 127.0.0.1:1080')

for stack in "${stacks[@]}"; do
  start "$stack" "${socks[@]}"
  expect "before" 200 "$(code -x socks5h://127.0.0.1:1080 http://10.9.0.2/)"
  at_rest=$(memory)

  say "$stack: $connections connections"
  # Of the stack before they say that all is open.
  rm -f "$WORK"/{many,unread,stuck} && touch "$WORK"/{many,unread,stuck}
  mkfifo "$WORK/go-$stack"
  exec 3<>"$WORK/go-$stack"
  nsenter --net=/run/netns/h1 "${client[@]}" many :1080 10.9.0.2 "$connections" <"$WORK/go-$stack" >"$WORK/many" 2>&1 &
  idle=$!
  until grep -q 'are open' "$WORK/many"; do
    kill -0 $idle 2>/dev/null || fail "$(tail -n 3 "$WORK/many")"
    sleep 0.2
  done
  held=$(memory)
  note "$stack: $connections connections take $(((held - at_rest) / 1024)) MB ($(((held - at_rest) * 1024 / connections)) bytes each), at rest $((at_rest / 1024)) MB"
  expect_at_most "kB for each connection" 64 $(((held - at_rest) / connections))

  say "$stack: and readers that never read, and targets that never do"
  mkfifo "$WORK/end-$stack"
  exec 4<>"$WORK/end-$stack"
  nsenter --net=/run/netns/h1 "${client[@]}" unread :1080 10.9.0.2 19 200 <"$WORK/end-$stack" >"$WORK/unread" 2>&1 &
  unread=$!
  nsenter --net=/run/netns/h1 "${client[@]}" stuck :1080 10.9.0.2 72 100 <"$WORK/end-$stack" >"$WORK/stuck" 2>&1 &
  stuck=$!
  wait_for 60 "readers that do not read" grep -q 'do not read' "$WORK/unread"
  wait_for 60 "writers that are stuck" grep -q 'are stuck' "$WORK/stuck"
  expect "what others fetch meanwhile" 3000000 "$(get -x socks5h://127.0.0.1:1080 http://host.example/bytes/3000000 | wc -c)"
  echo >&3
  wait_for 60 "all idle ones to be used" grep -q 'were used' "$WORK/many"
  loaded=$(memory)
  note "$stack: with 300 stuck streams besides $((loaded / 1024)) MB; $(cat "$WORK/stuck")"
  # docs/no-root.md and docs/proxy.md: 512 MiB of the stack's, 32 MiB of the proxy's and 8 KiB for each connection.
  expect_at_most "MB" $((512 + 32 + connections * 8 / 1024 + at_rest / 1024)) $((loaded / 1024))

  say "$stack: all of them end"
  kill "$idle" "$unread" "$stuck"
  wait "$idle" "$unread" "$stuck" || true
  exec 3>&- 4>&-
  wait_for 30 "a new one to be as before" on h1 curl -sf --max-time 10 -o /dev/null -x socks5h://127.0.0.1:1080 http://10.9.0.2/
  stop
done
