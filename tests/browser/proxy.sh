#!/usr/bin/env bash
# heavy: a browser
# timeout: 150
# A browser loads a page of the tunnel's other end by the proxy, SOCKS5 and HTTP, and asks nobody else for its name.
source "$(dirname "$0")/../netns/lib.sh"
source "$(dirname "$0")/../netns/proxy.bash"
type -P chromium >/dev/null || type -P chromium-browser >/dev/null || type -P google-chrome >/dev/null || skip "there is no chromium"
need tcpdump
far
capture

for stack in "${stacks[@]}"; do
  start "$stack" '[Socks5]' 'BindAddress = 127.0.0.1:1080' '[http]' 'BindAddress = 127.0.0.1:8080'
  for proxy in socks5://127.0.0.1:1080 http://127.0.0.1:8080; do
    folder=$(mktemp -d -p "$WORK")
    : >"$WORK/names"
    expect "$stack: the page, by $proxy" inside \
      "$(on h1 timeout 60 python3 "$REPO/tests/browser/proxy.py" "$folder" "$proxy" "http://${proxy%%:*}.example/page")"
    (($(asked "${proxy%%:*}.example") > 0)) || fail "the server in the tunnel was not asked for the name"
  done
  nothing_escaped
  stop
done
