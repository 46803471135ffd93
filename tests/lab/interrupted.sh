#!/usr/bin/env bash
# heavy: the lab measures
# timeout: 500
# A run that is stopped keeps what was measured, and the same command finishes it; a subject that hangs costs its samples only.
source "$(dirname "$0")/lib.sh"
need jq
cd "$FILES"

arguments=(run pair/tcp-1 pair/ping --rounds 3 --probes 50 --only 'no tunnel,linerate' --baseline 'no tunnel'
  --linerated "$TUNNEL_DAEMON")
run() { "$LINERATE" lab "${arguments[@]}" --seconds 0.5 "$@"; }
kept() { find . -name 'lab-*.json.unfinished'; }
lines() { cat $(kept) /dev/null | wc -l; }

# On a machine that is very busy a row may fail; it has fewer samples then.
a_row_failed() { note "$(grep 'was not measured: \|round only: \|rounds only: ' "$WORK/table" || cat "$WORK/words")"; }

say "stopped by SIGTERM in the middle"
"$LINERATE" lab "${arguments[@]}" --seconds 0.5 >"$WORK/table" 2>"$WORK/words" &
pid=$!
wait_for 120 "two measurements" eval '(($(lines) >= 3))'
kill -TERM "$pid"
code=0 && wait "$pid" || code=$?
expect "exit code" 130 "$code"
file=$(kept)
file=${file#./}
grep -q "^12 measurements, about [0-9]* s. Each is saved to $file: " "$WORK/words" ||
  fail "not said how long it takes and where it is kept: $(cat "$WORK/words")"
grep -q "round 1 of 3, pair/tcp-1, linerate ([0-9]* s left)" "$WORK/words" || fail "not said how long is left: $(cat "$WORK/words")"
grep -q "Measurements so far are in $file; run the same command to continue" "$WORK/words" ||
  fail "not said where it is: $(cat "$WORK/words")"
expect "files" "$file" "$(ls)"
jq -s '[.[1:][].sample | values]' "$file" >"$WORK/first"
before=$(($(wc -l <"$file") - 1))

expect "words of a report on it" "linerate-lab: $file: an unfinished run; run the same command to continue it" \
  "$("$LINERATE" lab report "$file" 2>&1 || true)"

say "another command does not touch it"
cp "$file" given.json.unfinished
code=0 && "$LINERATE" lab "${arguments[@]}" --seconds 0.7 --output given.json 2>"$WORK/words" || code=$?
expect "exit code of another run for the same place" 1 "$code"
grep -q "given.json.unfinished: it was another run. Seconds of load: 0.5, then 0.7. Choose another file" "$WORK/words" ||
  fail "not said what differs: $(cat "$WORK/words")"
expect "the run that was kept there" same "$(cmp -s "$file" given.json.unfinished && echo same || echo different)"
rm given.json.unfinished

say "the same command goes on, if half a line was written, too"
printf '{"scenario":"pair/pi' >>"$file"
run >"$WORK/table" 2>"$WORK/words" || a_row_failed
grep -q "Continuing $file: $before of 12 measurements are done" "$WORK/words" || fail "it did not go on: $(cat "$WORK/words")"
expect "files" "${file%.unfinished}" "$(ls)"
mv "${file%.unfinished}" resumed.json
median "$FILES/resumed.json" pair/tcp-1 'no tunnel' throughput >/dev/null || fail "the record does not fit its schema"
expect "samples of the first part in the record" "$(jq length "$WORK/first")" \
  "$(jq --slurpfile first "$WORK/first" '[.rows[].samples[]] as $all | [$first[0][] | select(. as $one | $all | index([$one]))] | length' resumed.json)"

say "the record has the shape of one whose run was not stopped"
run --output whole.json >"$WORK/table" 2>"$WORK/words" || a_row_failed
jq -n --slurpfile whole whole.json --slurpfile resumed resumed.json '
  def shape: [(.bottleneck | type), .notes, (.samples[] | [.round, (.values | keys), (.round_trips_ms | length > 0)])];
  ([$whole[0], $resumed[0]] | map([keys, [.rows[] | [keys, .scenario, .subject]]]) | .[0] == .[1]),
  ([$whole[0].rows, $resumed[0].rows] | transpose[] | select(all(.failure == null)) | map(shape) | .[0] == .[1])' >"$WORK/same"
cat "$WORK/same"
expect "differences in shape" 0 "$(grep -cv true "$WORK/same" || true)"

say "a subject whose daemon hangs in its second round"
cat >hangs <<END
#!/bin/sh
[ "\$1" != --version ] || exit 0
echo >>$FILES/starts
$TUNNEL_DAEMON -f "\$1" &
[ \$(wc -l <$FILES/starts) -le 2 ] || { sleep 0.5; kill -STOP \$!; }
wait
END
chmod +x hangs
code=0
lab run pair/tcp-1 --rounds 3 --seconds 2 --subject "hangs=$FILES/hangs {iface}" --only 'hangs,linerate' --baseline linerate \
  --output hung.json >"$WORK/table" || code=$?
expect "exit code" 1 "$code"
cat "$WORK/table"
grep -q "hangs was \(not measured\|measured in 1 round only\): round [12]: " "$WORK/table" || fail "not said that it hung: $(cat "$WORK/table")"
expect_at_least "rounds of the other one" 1 "$(jq '.rows[] | select(.subject == "linerate").samples | length' hung.json)"
expect "files" 0 "$(find . -name '*.unfinished' | wc -l)"
