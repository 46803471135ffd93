#!/usr/bin/env bash
# timeout: 300
# A run that is stopped keeps what was measured, and the same command finishes it; a subject that hangs costs its samples only.
source "$(dirname "$0")/lib.sh"
need jq
cd "$FILES"

arguments=(run pair/tcp-1 pair/ping --rounds 3 --probes 50 --only 'no tunnel,linerate' --baseline 'no tunnel'
  --linerated "$TUNNEL_DAEMON")
run() { "$LINERATE" lab "${arguments[@]}" --seconds 0.5 "$@"; }
kept() { find . -name 'lab-*.json.unfinished'; }
lines() { cat $(kept) /dev/null | wc -l; }

say "stopped by SIGTERM in the middle"
"$LINERATE" lab "${arguments[@]}" --seconds 0.5 >"$WORK/table" 2>"$WORK/words" &
pid=$!
wait_for 60 "two measurements" eval '(($(lines) >= 3))'
kill -TERM "$pid"
code=0 && wait "$pid" || code=$?
expect "exit code" 130 "$code"
file=$(kept)
file=${file#./}
grep -q "^12 measurements, about [0-9]* s. They are kept in $file " "$WORK/words" ||
  fail "not said how long it takes and where it is kept: $(cat "$WORK/words")"
grep -q "round 1 of 3, pair/tcp-1, linerate ([0-9]* s left)" "$WORK/words" || fail "not said how long is left: $(cat "$WORK/words")"
grep -q "What was measured is in $file; the same command goes on with it" "$WORK/words" ||
  fail "not said where it is: $(cat "$WORK/words")"
expect "files" "$file" "$(ls)"
jq -s '[.[1:][].sample]' "$file" >"$WORK/first"
before=$(jq length "$WORK/first")

say "another command does not touch it"
cp "$file" given.json.unfinished
code=0 && "$LINERATE" lab "${arguments[@]}" --seconds 0.7 --output given.json 2>"$WORK/words" || code=$?
expect "exit code of another run for the same place" 1 "$code"
grep -q "given.json.unfinished: it was another run. Seconds of load: 0.5, then 0.7. Choose another place" "$WORK/words" ||
  fail "not said what differs: $(cat "$WORK/words")"
expect "the run that was kept there" same "$(cmp -s "$file" given.json.unfinished && echo same || echo different)"
rm given.json.unfinished

say "the same command goes on, if half a line was written, too"
printf '{"scenario":"pair/pi' >>"$file"
run >"$WORK/table" 2>"$WORK/words" || fail "the rest of the run was not clean: $(cat "$WORK/words")"
grep -q "Going on with $file: $before of 12 measurements are there" "$WORK/words" || fail "it did not go on: $(cat "$WORK/words")"
expect "files" "${file%.unfinished}" "$(ls)"
mv "${file%.unfinished}" resumed.json
median "$FILES/resumed.json" pair/tcp-1 linerate throughput >/dev/null || fail "the record does not fit its schema"
expect "samples of the first part in the record" "$before" \
  "$(jq --slurpfile first "$WORK/first" '[.rows[].samples[]] as $all | [$first[0][] | select(. as $one | $all | index([$one]))] | length' resumed.json)"

say "the record has the shape of one whose run was not stopped"
run --output whole.json >"$WORK/table" 2>"$WORK/words"
shape() {
  jq '[keys, (.rows[] | [.scenario, .subject, .failure, (.verdict | type), .notes,
    (.samples[] | [.round, (.values | keys), (.round_trips_ms | length > 0)])])]' "$1"
}
shape whole.json >"$WORK/whole"
diff "$WORK/whole" <(shape resumed.json) || fail "the record has another shape"

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
grep -q "hangs was measured in 1 round only: round 2: " "$WORK/table" || fail "not said that it hung: $(cat "$WORK/table")"
expect "rounds of the one that hung, and of the other" "hangs 1, linerate 3" \
  "$(jq -r '[.rows[] | "\(.subject) \(.samples | length)"] | sort | join(", ")' hung.json)"
expect "files" 0 "$(find . -name '*.unfinished' | wc -l)"
