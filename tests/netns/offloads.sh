#!/usr/bin/env bash
# heavy: streams as fast as the machine
# timeout: 90
# With each offload of the kernel switched off, as if the kernel lacked it, the tunnel still carries everything.
source "$(dirname "$0")/lib.sh"
need iperf3 nc ethtool

two_hosts
key h1 h2
head -c 5000000 /dev/urandom >"$WORK/file"

off() { # OFFLOADS : both ends without these, and everything through the tunnel
  say "LINERATE_OFFLOADS=$1"
  export LINERATE_OFFLOADS=$1
  daemon h1 wg1
  daemon h2 wg2
  wire v4
  pings h1 10.9.0.2
  pings h2 fd09::1 -s 1372
  pings h1 10.9.0.2 -s 20000
  send_file h1 h2 10.9.0.2 "$WORK/file"
  send_file h2 h1 fd09::1 "$WORK/file"
  # UDP GSO packets pass whether the kernel has USO or not.
  iperf h1 h2 10.9.0.2 -u -b 20M -l 1372
  expect_at_least "UDP at 20 Mbit/s, Mbit/s" 15 "$RATE"
}
restart() { stop_daemon wg1 && stop_daemon wg2; }
feature() { on h1 ethtool -k wg1 | awk -v name="$1:" '$1 == name { print $2 }'; } # NAME
header() { ip -n h1 -d link show wg1 | grep -o 'vnet_hdr [a-z]*'; }
# GSO batches are larger than any datagram of a tunnel with this MTU.
gso_batches() { (($(counted h1 gso_batches) > 0)) && echo yes || echo no; }

count h1 out gso_batches udp dport 50002 udp length '>' 1500
off ""
expect "the device" "vnet_hdr on" "$(header)"
expect "TCP GSO" on "$(feature tcp-segmentation-offload)"
expect "GSO batches" yes "$(gso_batches)"
uso=$(feature tx-udp-segmentation) # off before Linux 6.2

restart && off -vnet_hdr
expect "the device" "vnet_hdr off" "$(header)"
restart && off -tso
expect "TCP GSO" off "$(feature tcp-segmentation-offload)"
expect "UDP GSO" "$uso" "$(feature tx-udp-segmentation)"
restart && off -uso
expect "TCP GSO" on "$(feature tcp-segmentation-offload)"
expect "UDP GSO" off "$(feature tx-udp-segmentation)"
restart && off -udp_gro
restart
unblock h1
count h1 out gso_batches udp dport 50002 udp length '>' 1500
off -udp_gso
expect "GSO batches" no "$(gso_batches)"
restart && off -vnet_hdr,-tso,-uso,-udp_gro,-udp_gso
expect "GSO batches" no "$(gso_batches)"

restart
export LINERATE_OFFLOADS=-lro
expect_failure "an unknown offload" on h1 timeout 5 "$TUNNEL_DAEMON" -f wg1
grep -q -- '"-lro" is not among them' "$SCENARIO_LOGS/expected-failures" || fail "the refusal does not name what was wrong"
