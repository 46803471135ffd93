#!/usr/bin/env bash
# heavy: 130,000 allowed IPs
# timeout: 90
# 130,000 allowed IPs on one peer, in one request and in several; all are there, all are used.
source "$(dirname "$0")/lib.sh"
need nc

two_hosts
tunnel v4
prefixes() { awk 'BEGIN { for (i = 0; i < 130000; i++) printf "10.%d.%d.%d/32\n", 100 + int(i / 65536), int(i / 256) % 256, i % 256 }'; }

say "one file for wg"
{
  printf '[Peer]\nPublicKey = %s\nAllowedIPs = 10.9.0.2/32\n' "$(public h2)"
  prefixes | sed 's/^/AllowedIPs = /'
} >"$WORK/many.conf"
started=$(now_ms)
on h1 wg addconf wg1 "$WORK/many.conf"
note "130,000 allowed IPs in one addconf: $(($(now_ms) - started)) ms"
on h1 wg show wg1 allowed-ips | cut -f 2 | tr ' ' '\n' | sort >"$WORK/seen"
expect "number of allowed IPs" 130001 "$(wc -l <"$WORK/seen")"
expect "the allowed IPs" "$({ prefixes && echo 10.9.0.2/32; } | sort | sha256sum)" "$(sha256sum <"$WORK/seen")"

say "four requests of about a megabyte"
on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.0.2/32
key=$(public h2 | hex)
for part in 0 1 2 3; do
  answer=$({ printf 'set=1\npublic_key=%s\n' "$key" && prefixes | awk -v part=$part 'int((NR - 1) / 32500) == part { print "allowed_ip=" $0 } END { print "" }'; } | uapi wg1)
  expect "answer to request $part" errno=0 "$answer"
done
expect "number of allowed IPs" 130001 "$(on h1 wg show wg1 allowed-ips | wc -w | awk '{ print $1 - 1 }')"

say "traffic, first and last of them"
address h2 wg2 10.100.0.0/32 10.101.251.207/32
ip -n h1 route add 10.100.0.0/15 dev wg1
pings h1 10.100.0.0
pings h1 10.101.251.207
expect_at_most "megabytes of the daemon" 300 $(($(rss_kb "${PID[wg1]}") / 1024))
note "memory of the daemon: $(($(rss_kb "${PID[wg1]}") / 1024)) MB"
on h1 wg set wg1 peer "$(public h2)" allowed-ips 10.9.0.2/32
pings h1 10.9.0.2
