#!/usr/bin/env bash
# `wg show transfer` counts every byte of the datagrams' payload and nothing else.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
expect "bytes before the first packet" "0 0" "$(received h1 wg1) $(sent h1 wg1)"

# A data message is 32 bytes and the inner packet, padded to 16. A ping of the default size is 84 bytes: 96 + 32.
data() { echo $((($1 + 15) / 16 * 16 + 32)); } # BYTES OF THE INNER PACKET
on h1 ping -n -q -c 10 -i 0.01 -W 2 10.9.0.2
# An initiation of 148, a response of 92, a keepalive of 32 (only if nothing was staged, which the ping was).
expect "bytes that h1 sent" $((148 + 10 * $(data 84))) "$(sent h1 wg1)"
expect "bytes that h1 received" $((92 + 10 * $(data 84))) "$(received h1 wg1)"
expect "bytes that h2 received" "$(sent h1 wg1)" "$(received h2 wg2)"
expect "bytes that h2 sent" "$(received h1 wg1)" "$(sent h2 wg2)"

# Each size around a multiple of 16, up to the MTU (where the padding is clamped to it).
for size in 0 3 4 5 20 21 1387 1388 1392; do
  tx=$(sent h1 wg1) rx=$(received h1 wg1)
  pings h1 10.9.0.2 -s $size
  inner=$((28 + size)) padded=$(data $((28 + size)))
  ((padded <= 1420 + 32)) || padded=$((1420 + 32))
  expect "bytes sent for three inner packets of $inner bytes" $((3 * padded)) $(($(sent h1 wg1) - tx))
  expect "bytes received for three inner packets of $inner bytes" $((3 * padded)) $(($(received h1 wg1) - rx))
done

# The tunnel's counters and a bystander agree over a bulk transfer, in which packets go in batches.
count h2 in arrived udp dport 50002
head -c 5000000 /dev/zero >"$WORK/file"
before=$(received h2 wg2)
send_file h1 h2 10.9.0.2 "$WORK/file"
read -r packets bytes < <(on h2 nft list counter inet scenario arrived | awk '/packets/ { print $2, $4 }')
# The bystander sees datagrams as GRO or GSO trains, so it counts at least one IP and UDP header (28) per train,
# and at most one per datagram.
seen=$(($(received h2 wg2) - before))
say "h2 counted $seen bytes; the filter $bytes bytes in $packets trains"
expect_at_most "bytes of payload" $((bytes - 28 * packets)) "$seen"
expect_at_least "bytes of payload" 5000000 "$seen"
