#!/usr/bin/env bash
# heavy: the lab measures
# timeout: 240
# Every flood that the lab knows, once: the tunnel goes on, the daemon's memory stays what it was, new peers get in.
source "$(dirname "$0")/lib.sh"

record=$FILES/record.json
lab run 'pair/flood-*' --rounds 1 --seconds 1 --only linerate --output "$record" \
  >"$FILES/table" 2>"$FILES/progress" || { cat "$FILES/table" "$FILES/progress" >&2 && fail "the run was not clean"; }
cat "$FILES/table"
for content in valid forged garbage wrong-cookie replayed unknown cookies noise; do
  scenario=pair/flood-$content
  expect_at_least "$content: Gbit/s beside the flood" 0.1 "$(median "$record" "$scenario" linerate throughput | awk '{ print $1 / 1e9 }')"
  newcomers=$(median "$record" "$scenario" linerate newcomers_answered)
  case $content in
    # Two or three of them have their turn in so short a flood, and some are sent a cookie.
    valid | forged | wrong-cookie) note "$content: $newcomers of the newcomers answered at their first try" ;;
    *) expect_at_least "$content: share of newcomers answered at their first try" 0.5 "$newcomers" ;;
  esac
  expect_at_most "$content: megabytes of memory" 32 "$(median "$record" "$scenario" linerate peak_memory | awk '{ print $1 / 1e6 }')"
done
