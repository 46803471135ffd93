#!/usr/bin/env bash
# heavy: 10,000 connections
# timeout: 300
# Near to 10,000 connections through a proxy, idle, stuck in either direction, and with readers that never read; memory stays within the bound that is stated.
#
# Environment:
#   CONNECTIONS   how many there are (9600, or what there are descriptors for)
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/proxy.bash"
ulimit -n 32768 2>/dev/null || ulimit -n "$(ulimit -Hn)"
# With the kernel's stack each takes two descriptors of the proxy.
most=$((($(ulimit -n) - 1000) / 2))
connections=${CONNECTIONS:-9600}
((connections <= most)) || connections=$most
far
socks=('[Socks5]' 'BindAddress = 127.0.0.1:1080')

# The most memory that the proxy had, in MB.
peak() { awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$(pgrep -u 1000 -o linerate-proxy)/status"; }
tcp_pages() { awk '/^TCP:/ { print $NF }' /proc/net/sockstat; }

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
  # docs/proxy.md: the proxy's 32 MiB and 12 KiB for each connection, and 512 MiB of its own stack's.
  bound=$((32 + connections * 12 / 1024 + at_rest / 1024))
  [[ $stack == kernel ]] || bound=$((bound + 512))
  expect_at_most "MB" $bound $((loaded / 1024))

  say "$stack: all of them end"
  kill "$idle" "$unread" "$stuck"
  wait "$idle" "$unread" "$stuck" || true
  exec 3>&- 4>&-
  wait_for 30 "a new one to be as before" on h1 curl -sf --max-time 10 -o /dev/null -x socks5h://127.0.0.1:1080 http://10.9.0.2/
  stop

  # Anew: those that close in the background count, too, and what was there before is not the peak of these.
  start "$stack" "${socks[@]}"
  # Both ends and all that is between them are this machine's here: no more than its memory for TCP is enough for, which
  # is a sixteenth of all (tcp_init_mem; net.ipv4.tcp_mem is not to be seen in here).
  each=272 && [[ $stack == kernel ]] || each=128
  enough=$(awk -v each=$each '/^MemTotal/ { print int($2 / 16 / each) }' /proc/meminfo)
  readers=$((enough < connections ? enough : connections))
  say "$stack: $readers readers that never read"
  pages=$(tcp_pages)
  rm -f "$WORK/unread" && touch "$WORK/unread"
  mkfifo "$WORK/none-$stack"
  exec 4<>"$WORK/none-$stack"
  nsenter --net=/run/netns/h1 "${client[@]}" unread :1080 10.9.0.2 19 "$readers" <"$WORK/none-$stack" >"$WORK/unread" 2>&1 &
  unread=$!
  until grep -q 'do not read' "$WORK/unread"; do
    kill -0 $unread 2>/dev/null || fail "$(tail -n 3 "$WORK/unread")"
    sleep 0.2
  done
  sleep 2
  note "$stack: $readers readers ($(cat "$WORK/unread")) take at most $(peak) MB of $bound, and $((($(tcp_pages) - pages) * 4 / readers)) kB each of the kernel's, of both ends"
  expect_at_most "MB at most" $bound "$(peak)"
  kill "$unread"
  wait "$unread" || true
  exec 4>&-
  wait_for 30 "a new one to be as before" on h1 curl -sf --max-time 10 -o /dev/null -x socks5h://127.0.0.1:1080 http://10.9.0.2/
  stop
done
