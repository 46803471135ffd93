#!/usr/bin/env bash
# heavy: the lab measures
# timeout: 300
# A quick run with two subjects: a table, a record that fits its schema, a page, Markdown, a comparison.
source "$(dirname "$0")/lib.sh"

record=$FILES/record.json
lab run --quick --rounds 2 --seconds 0.5 --probes 200 --only linerate,wireguard-go --output "$record" \
  >"$FILES/table" 2>"$FILES/progress" || { cat "$FILES/table" "$FILES/progress" >&2 && fail "the run was not clean"; }
cat "$FILES/table"
grep -q "round 2 of 2, pair/ping, linerate" "$FILES/progress" || fail "no progress was shown"
grep -q "The record is $record" "$FILES/progress" || fail "the record's place was not said"
for scenario in pair/tcp-1 pair/tcp-105 pair/udp-large pair/udp-imix pair/ping pair/start; do
  grep -qx "$scenario" "$FILES/table" || fail "the table lacks $scenario"
done
expect_at_least "Gbit/s of one TCP stream" 0.05 "$(median "$record" pair/tcp-1 linerate throughput | awk '{ print $1 / 1e9 }')"
expect_at_least "datagrams per second" 100 "$(median "$record" pair/udp-large wireguard-go packet_rate)"
for subject in linerate wireguard-go; do
  expect_at_least "datagrams of a mix per second, $subject" 100 "$(median "$record" pair/udp-imix $subject packet_rate)"
done
expect_at_most "mean ping in ms" 1000 "$(median "$record" pair/ping linerate latency_mean)"

page=$("$LINERATE" lab report "$record")
expect "the page's place" "$FILES/record.html" "$page"
grep -q "<svg" "$page" || fail "the page has no plot"
"$LINERATE" lab report --markdown "$record" >"$FILES/words"
grep -q "| linerate" "$FILES/words" || fail "the Markdown has no row"
"$LINERATE" lab report --table "$record" >"$FILES/again"
expect "the table, made again from the record" "same" "$(cmp -s "$FILES/table" "$FILES/again" && echo same || echo different)"
"$LINERATE" lab compare "$record" "$record" >"$FILES/compared"
grep -q "no clear difference" "$FILES/compared" || fail "a record differs from itself"
