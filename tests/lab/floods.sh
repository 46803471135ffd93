#!/usr/bin/env bash
# heavy: the floods take all processors
# timeout: 240
# Every kind of flood, once: the tunnel goes on, the daemon's memory stays what it was, new peers get in.
source "$(dirname "$0")/lib.sh"

"$PROGRAMS/linerate-flood" --daemon "$TUNNEL_DAEMON" --rounds 1 --seconds 1 >"$FILES/table" || fail "the run was not clean"
cat "$FILES/table"
figure() { # FLOOD COLUMN
  awk -v flood="$1" -v column="$2" '$1 == flood { print $column }' "$FILES/table"
}
for flood in valid forged garbage wrong-cookie replayed unknown cookies noise; do
  expect_at_least "$flood: Gbit/s beside the flood" 0.1 "$(figure $flood 3)"
  answered=$(figure $flood 7)
  case $flood in
    # Two or three of them have their turn in so short a flood, and some are sent a cookie.
    valid | forged | wrong-cookie) note "$flood: $answered % of new peers answered at their first initiation" ;;
    *) expect_at_least "$flood: % of new peers answered at their first initiation" 50 "$answered" ;;
  esac
  expect_at_most "$flood: megabytes of memory" 32 "$(figure $flood 9)"
done
expect_at_least "handshakes per second" 100 "$(figure handshakes 2)"
