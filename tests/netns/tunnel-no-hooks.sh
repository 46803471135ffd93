#!/usr/bin/env bash
# `--no-hooks`: none of a file's commands is run, neither by up nor by down.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
hooks=()
for when in PreUp PostUp PreDown PostDown; do hooks+=("$when = echo $when >>$WORK/runs"); done
tunnel_file wg1 10.9.0.2/32 "${hooks[@]}"
: >"$WORK/runs"

remember
good linerate up wg1 --no-hooks
pings h1 10.9.0.2
good linerate down wg1 --no-hooks
is_gone wg1
expect "commands that were run" "" "$(xargs <"$WORK/runs")"
as_before "down"

say "without the option all of them"
good linerate up wg1
good linerate down wg1
is_gone wg1
expect "commands that were run" "PreUp PostUp PreDown PostDown" "$(xargs <"$WORK/runs")"
