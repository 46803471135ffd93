#!/usr/bin/env bash
# heavy: a browser, 10,000 clients
# timeout: 120
# The page of a server with 10,000 clients: sorted, searched and turned over, and drawn as fast as that of a small one.
# Nobody looks: the helper does nothing.
#
# Environment:
#   CLIENTS   how many (10000)
source "$(dirname "$0")/../netns/lib.sh"
source "$(dirname "$0")/../netns/tunnel-files.bash"
source "$(dirname "$0")/../netns/web.bash"
need strace
has_browser

clients=${CLIENTS:-10000}
host h1
{
  printf '%s\n' '[Interface]' "PrivateKey = $(wg genkey)" 'Address = 10.71.0.1/16' 'ListenPort = 50001' \
    '#! PublicEndpoint = 192.0.2.1'
  # Any 43 base64 digits whose last one ends in zero bits are a public key; 42 of them are 63/2 random bytes.
  head -c $((clients * 63 / 2)) /dev/urandom | base64 -w 42 | awk '{
    printf "[Peer]\n# Name = client-%05d\n#! Created = 2026-01-01T00:00:00Z\nPublicKey = %sA=\n", NR, $0
    printf "AllowedIPs = 10.71.%d.%d/32\n", 1 + int(NR / 250), 1 + NR % 250 }'
} >"$WORK/wg1.conf"
install -m 600 "$WORK/wg1.conf" /etc/wireguard/wg1.conf
good linerate up wg1
page
token --read-only >"$WORK/reader"
FOLDER=$WORK CLIENTS=$clients ip netns exec h1 python3 "$REPO/tests/browser/web-many.py" "$PAGE" | tee "$WORK/said" ||
  fail "the browser saw what it should not"
memory="RSS $(rss_kb "${PID[web]}") kB, helper $(rss_kb "${PID[helper]}") kB"
note "$clients clients: $(sed -n 's/^figures: //p' "$WORK/said"), $memory"
expect_at_most "kilobytes of RSS" 40000 "$(rss_kb "${PID[web]}")"

# With a grace for what the browser has asked last.
sleep 1
timeout 15 strace -f -qq -e trace=all -o "$WORK/calls" -p "${PID[helper]}" || true
expect "what the helper does in 15 seconds when nobody looks" 0 "$(grep -c ' = [-0-9]' "$WORK/calls" || true)"
