#!/usr/bin/env bash
# timeout: 90
# Many workers on one flow: with followers at every batch, no TCP segment and no datagram arrives out of order.
source "$(dirname "$0")/lib.sh"
need iperf3
need nstat

joined() { on "$1" "$LINERATE" show "$2" --stats | awk '/wakeups followers work/ { print $NF }'; } # HOST IFACE
unordered() { on "$1" nstat -asz TcpExtTCPOFOQueue | awk '/OFOQueue/ { print $2 }'; }               # HOST

export LINERATE_FOLLOWERS=always
two_hosts
tunnel v4
# Less than the machine can carry: whatever is out of order then was put out of order, not lost.
before=$(joined h1 wg1)
iperf h1 h2 10.9.0.2 -b 1G -t 4
expect "TCP segments out of order on h2" 0 "$(unordered h2)"
iperf h2 h1 10.9.0.1 -b 1G -t 4
expect "TCP segments out of order on h1" 0 "$(unordered h1)"
iperf h1 h2 10.9.0.2 -u -l 1372 -b 300M -t 4
grep -i "out-of-order" "$WORK/iperf" && fail "datagrams arrived out of order"
note "followers that found work: $(joined h1 wg1) on h1, $(joined h2 wg2) on h2"
expect_at_least "followers that found work on h1" 100 $(($(joined h1 wg1) - before))
pings h1 10.9.0.2
