#!/usr/bin/env bash
# `linerate speed`: a slow link is named, not a processor, and so are paths on which large packets or streams get lost.
# timeout: 150
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/speed.bash"
need tc

routed_hosts
# Which fills a queue; BBR keeps it short.
for at in h1 h2; do on "$at" sysctl -qw net.ipv4.tcp_congestion_control=reno; done
tunnel v4
on h1 wg set wg1 peer "$(public h2)" endpoint 198.51.100.2:50002
pings h1 10.9.0.2
responder h2 wg2

say "a path that swallows large datagrams"
block r in ip protocol udp ip length 1301-1500
measures 10.9.0.2 --seconds 1
# 60 bytes of headers: IPv4, UDP and ours; and the payload is padded to 16 bytes.
holds "the largest packet that passes" '.mtu.interface == 1420 and .mtu.passes == 1232'
speed 10.9.0.2 --seconds 1
says "only packets of up to 1232 bytes pass, and the interface's MTU is 1420: set .MTU = 1232."
unblock r

say "a stream that stalls"
block h2 in meta iifname wg2 tcp dport 5282 meta length 1000-65535
measures 10.9.0.2 --seconds 1
holds "what arrived" '.send.bytes == 0 and .receive.bytes > 0'
holds "the sentence" '.verdict | test(" to 10.9.0.2, the slower way: the stream stalled")'
unblock h2

say "a slow link"
for end in r1 r2; do
  on r tc qdisc replace dev "$end" root tbf rate 10mbit burst 16k limit 256k 2>/dev/null || skip "this kernel has no tbf"
done
measures 10.9.0.2 --seconds 4
for way in send receive; do
  holds "$way: no more than the link carries" ".$way.megabitsPerSecond < 11"
  holds "$way: the verdict" ".$way.bottleneck.says | startswith(\"bound by the link between the ends:\")"
done
holds "the sentence" '.verdict | test("the slower way: bound by the link between the ends: .* \\(.*\\)$")'
