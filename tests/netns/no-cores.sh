#!/usr/bin/env bash
# No program leaves a core file, however short its run: all of them handle keys of tunnels or clients.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

ulimit -H -c unlimited 2>/dev/null && ulimit -c unlimited || skip "core dumps cannot be allowed here"
[[ $(cat /proc/sys/kernel/core_pattern) != [/\|]* ]] || skip "the kernel gives cores to $(cat /proc/sys/kernel/core_pattern) here"
mkdir "$WORK/cores" && cd "$WORK/cores"
hosts_with_files
(sleep 60 & kill -ABRT $! && wait $!) 2>/dev/null || true
expect "cores of a program that leaves one" 1 "$(find . -type f | wc -l)"
rm -f ./*

aborted() { # NAME PROGRAM [ARGUMENT]... : while it waits for more on standard input
  local name=$1 pid
  shift
  "$@" <"$WORK/fifo" >/dev/null 2>&1 &
  pid=$!
  wait_for 10 "$name to wait" waits "$pid" "$(basename "$1")"
  kill -ABRT "$pid"
  wait "$pid" 2>/dev/null || true
  expect "cores of $name" "" "$(find . -type f)"
}
# Whether the program is past its start and blocks in a read.
waits() { [[ $(cat "/proc/$1/comm") == "${2:0:15}" && $(awk '{ print $3 }' "/proc/$1/stat") == S ]]; }
mkfifo "$WORK/fifo"
exec 9<>"$WORK/fifo" # a writer, which writes nothing
aborted "linerate pubkey" "$LINERATE" pubkey
ln -s "$LINERATE" "$WORK/wg"
aborted "wg pubkey" "$WORK/wg" pubkey
aborted "linerate web-helper" "$LINERATE" web-helper --user root --socket "$WORK/helper.sock"
mkdir -m 700 "$WORK/state"
aborted "linerate-web" "$PROGRAMS/linerate-web" serve --state "$WORK/state" --helper "$WORK/helper.sock" --listen "unix:$WORK/page.sock"
