#!/usr/bin/env bash
# heavy: 10,000 peers
# timeout: 120
# 10,000 peers by one `wg addconf`: they are all there, the tunnel works beside them, and removing them is as easy.
source "$(dirname "$0")/lib.sh"

PEERS=10000
two_hosts
tunnel v4
pings h1 10.9.0.2
# Any 43 base64 digits whose last one ends in zero bits are a public key.
# 42 of them are 63/2 random bytes: as many are read as are needed, so that no program writes to a closed pipe.
head -c $((PEERS * 63 / 2)) /dev/urandom | base64 -w 42 |
  awk '{ printf "[Peer]\nPublicKey = %sA=\nAllowedIPs = 10.%d.%d.%d/32\n", $0, 100 + int(NR / 65536), int(NR / 256) % 256, NR % 256 }' >"$WORK/peers.conf"
memory=$(rss_kb "${PID[wg1]}")
started=$(now_ms)
on h1 wg addconf wg1 "$WORK/peers.conf"
took=$(($(now_ms) - started))
per_peer=$((($(rss_kb "${PID[wg1]}") - memory) * 1024 / PEERS))
note "$PEERS peers in one addconf: $took ms, $per_peer bytes of RSS each"
expect_at_most "milliseconds for $PEERS peers" 20000 $took
expect "peers" $((PEERS + 1)) "$(on h1 wg show wg1 peers | wc -l)"
pings h1 10.9.0.2

started=$(now_ms)
on h1 wg show wg1 dump >/dev/null
note "wg show dump: $(($(now_ms) - started)) ms"

# As a replacement: the old ones go, one stays, and its session with it is not missed.
printf '[Interface]\nPrivateKey = %s\nListenPort = 50001\n[Peer]\nPublicKey = %s\nAllowedIPs = 10.9.0.2/32\nEndpoint = 192.0.2.2:50002\n' \
  "$(cat "$WORK/h1.key")" "$(public h2)" >"$WORK/one.conf"
started=$(now_ms)
on h1 wg setconf wg1 "$WORK/one.conf"
note "setconf back to one peer: $(($(now_ms) - started)) ms"
expect "peers" 1 "$(on h1 wg show wg1 peers | wc -l)"
wait_for 10 "the tunnel to work" on h1 ping -n -q -c 1 -W 1 10.9.0.2
