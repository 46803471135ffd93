#!/usr/bin/env bash
# heavy: a flood
# A flood into the tunnel meets a full queue below it: every lost packet is counted, by us or by the kernel, and no thread spins or stops.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.bash"
need nc tc

LOG_LEVEL=info # as users have it
two_hosts
tunnel v4
before_fault
block h2 in iifname wg2 udp dport 9 # so that no answer ends the flood
flood() { on h1 timeout 1 nc -u 10.9.0.2 9 </dev/zero || true; }
full() { # WHAT SURE QDISC... : floods h1's cable, if SURE until the socket has no room
  local what=$1 sure=$2 busy=0 before
  shift 2
  on h1 tc qdisc replace dev e1 root "$@" 2>/dev/null || skip "this kernel has no $1"
  before=$(stat_of wg1 drop_send_busy)
  until
    flood
    busy=$(($(stat_of wg1 drop_send_busy) - before))
    ((busy || !sure))
  do :; done
  say "$what: $(on h1 tc -s qdisc show dev e1 | tr -s '\n ' ' ')"
  note "$what: $busy datagrams had no room in the socket"
  on h1 tc qdisc delete dev e1 root
  after_fault 5 "$what"
}
full "a slow link with a short queue" 0 tbf rate 1mbit burst 10k limit 20k
full "a slow link with a queue that is longer than the socket's buffer" 1 tbf rate 1mbit burst 10k limit 1000m
expect_at_most "lines in the log of wg1" 3 "$(wc -l <"$SCENARIO_LOGS/wg1.log")"
