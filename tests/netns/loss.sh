#!/usr/bin/env bash
# timeout: 60
# A line that loses one datagram in a hundred: slower, never wrong.
source "$(dirname "$0")/lib.sh"
need nc

two_hosts
tunnel v4
pings h1 10.9.0.2
rule h1 out udp dport 50002 numgen random mod 100 '<' 1 drop
rule h2 out udp dport 50001 numgen random mod 100 '<' 1 drop
head -c 20000000 /dev/urandom >"$WORK/file"
send_file h1 h2 10.9.0.2 "$WORK/file" 40
send_file h2 h1 fd09::1 "$WORK/file" 40
