#!/usr/bin/env bash
# heavy: the floods take all processors
# timeout: 240
# Every kind of flood, once: the tunnel goes on (how fast is for the benchmark to say), the daemon's memory stays what it was, new peers get in.
source "$(dirname "$0")/lib.sh"

"$PROGRAMS/linerate-flood" --daemon "$TUNNEL_DAEMON" --rounds 1 --seconds 1 >"$FILES/table" || fail "the run was not clean"
cat "$FILES/table"
figure() { # FLOOD COLUMN
  awk -v flood="$1" -v column="$2" '$1 == flood { print $column }' "$FILES/table"
}
let_in=0 carried=0
for flood in valid forged garbage wrong-cookie replayed unknown cookies noise; do
  # In one second beside a flood, on a machine that has other work, the stream may wait for a retransmission.
  beside=$(figure $flood 3)
  note "$flood: $beside Gbit/s beside the flood"
  ! awk -v beside="$beside" 'BEGIN { exit !(beside >= 0.001) }' || carried=$((carried + 1))
  # Two or three of them have their turn in so short a flood; one that is sent a cookie, or whose initiation finds the
  # socket's buffer full, is not among them.
  answered=$(figure $flood 7)
  note "$flood: $answered % of new peers answered at their first initiation"
  ! awk -v answered="$answered" 'BEGIN { exit !(answered >= 50) }' || let_in=$((let_in + 1))
  expect_at_most "$flood: megabytes of memory" 32 "$(figure $flood 9)"
done
expect_at_least "floods beside which the stream went on, of 8" 4 "$carried"
expect_at_least "floods that let half of the new peers in at their first initiation, of 8" 4 "$let_in"
expect_at_least "handshakes per second" 1 "$(figure handshakes 2)"
