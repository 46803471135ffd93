#!/usr/bin/env bash
# An import that a signal ends leaves nothing, neither a file nor its copy of the old tool's database; the copy of one that was killed goes with the next.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
need sqlite3
# A /tmp of its own, with what of the tests is there.
mkdir "$WORK/tmp"
mount -t tmpfs -o mode=1777 tmpfs "$WORK/tmp"
for folder in "$REPO" "$PROGRAMS" "$SCENARIO_LOGS"; do
  [[ $folder == /tmp/* ]] || continue
  mkdir -p "$WORK$folder"
  mount --bind "$folder" "$WORK$folder"
done
mount --rbind "$WORK/tmp" /tmp
sample wg-easy-15

# A sqlite3 that is at work until it is ended.
mkdir "$WORK/slow"
cp "$(type -P sqlite3)" "$WORK/sqlite3"
printf '#!/bin/bash\nprintf at-work >"%s"\nexec sleep 1000\n' "/tmp/at-work" >"$WORK/slow/sqlite3"
chmod 755 "$WORK/slow" "$WORK/slow/sqlite3" "$WORK"
programs=$(dirname "$(type -P sqlite3)")
start_import() { # in the background, until its sqlite3 is at work
  rm -f /tmp/at-work
  nsenter --net=/run/netns/h1 "$LINERATE" server import "$WORK/wg-easy-15" >"$WORK/said" 2>&1 &
  import=$!
  wait_for 10 "sqlite3 to be at work" test -s /tmp/at-work
}
copies() { find /tmp -mindepth 1 -maxdepth 1 -name 'linerate-import-*' | wc -l; }
# The tool takes programs from a fixed PATH, so this one stands in the original's place.
mount --bind "$WORK/slow/sqlite3" "$programs/sqlite3"

for signal in INT TERM; do
  say "SIG$signal"
  start_import
  expect "copies while it works" 1 "$(copies)"
  kill -"$signal" "$import"
  if wait "$import"; then fail "the import went on after SIG$signal"; fi
  said "why it ended" "interrupted; nothing was written"
  expect "copies afterwards" 0 "$(copies)"
  expect "files" "" "$(ls -A /etc/wireguard)"
  expect "processes of sqlite3" "" "$(pgrep -x sleep || true)"
done

say "SIGKILL"
start_import
kill -KILL "$import"
wait "$import" || true
expect "copies afterwards" 1 "$(copies)"
pkill -x sleep || true # in the PID namespace of this scenario
start_import
expect "copies while the next one works" 1 "$(copies)"
other=$import
# One that works beside it is not disturbed.
start_import
expect "copies of two imports" 2 "$(copies)"
kill -TERM "$other" "$import"
wait "$other" "$import" || true
expect "copies afterwards" 0 "$(copies)"
umount "$programs/sqlite3"
import "$WORK/wg-easy-15"
expect "copies after an import" 0 "$(copies)"
