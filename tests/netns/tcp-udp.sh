#!/usr/bin/env bash
# timeout: 90
# TCP and UDP, both families inside, over both families outside, in both directions and several at once.
source "$(dirname "$0")/lib.sh"
need iperf3 nc

two_hosts
tunnel v4
for outside in v4 v6; do
  say "outside: $outside"
  [[ $outside == v4 ]] || { stop_daemon wg1 && stop_daemon wg2 && tunnel v6; }
  for inside in 10.9.0.2 fd09::2; do
    iperf h1 h2 $inside
    expect_at_least "TCP, Mbit/s" 1 "$RATE"
    iperf h1 h2 $inside -R -P 4
    expect_at_least "TCP backwards, four streams, Mbit/s" 1 "$RATE"
    iperf h1 h2 $inside -u -b 20M
    expect_at_least "UDP at 20 Mbit/s, Mbit/s" 15 "$RATE"
  done
done

# The data arrives unchanged, not just the right number of bytes.
head -c 20000000 /dev/urandom >"$WORK/file"
send_file h1 h2 10.9.0.2 "$WORK/file"
send_file h2 h1 fd09::1 "$WORK/file"
