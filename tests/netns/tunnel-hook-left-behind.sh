#!/usr/bin/env bash
# What a hook leaves running may use linerate later, like anybody; a hook itself may save, and is refused what would wait for it.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need flock

hosts_with_files
# What the hook of wg1 leaves behind: it waits for the file `go`, runs its words and writes down what they said.
cat >"$WORK/left-behind" <<SH
(until [[ -e $WORK/go ]]; do sleep 0.05; done
 for verb in save reload; do "$LINERATE" \$verb wg1 2>&1; echo "\$verb: \$?"; done >$WORK/later; touch $WORK/done) &
SH
hook="bash $WORK/left-behind"

say "a process that a hook left behind is no hook"
tunnel_file wg1 10.9.0.2/32 "PostUp = $hook </dev/null >/dev/null 2>&1"
good linerate up wg1
touch "$WORK/go"
wait_for 10 "the process that was left behind" test -e "$WORK/done"
expect "save and reload, run by it" "save: 0 reload: 0" "$(grep -E '^(save|reload): ' "$WORK/later" | xargs)"

say "it waits for another command like anybody"
flock /run/linerate/wg1.lock bash -c "touch $WORK/locked; until [[ -e $WORK/release ]]; do sleep 0.05; done" &
wait_for 20 "the lock to be taken" test -e "$WORK/locked"
at h1 env LINERATE_LOCKED=wg1 timeout 30 "$LINERATE" save wg1 >"$WORK/said" 2>&1 &
saving=$!
wait_for 10 "save to say that it waits" grep -q "another command is using wg1; waiting for it" "$WORK/said"
touch "$WORK/release"
wait $saving || fail "save, once the lock is free: ended with $?: $(cat "$WORK/said")"
good linerate down wg1

say "a hook may save, and is refused what would wait for the command that runs it"
tunnel_file wg1 10.9.0.2/32 "PostUp = $LINERATE save wg1 && { ! $LINERATE reload wg1 2>$WORK/refusal; }"
good linerate up wg1
grep -q "cannot be run from the PreUp, PostUp, PreDown or PostDown of wg1" "$WORK/refusal" || fail "reload by a hook: $(cat "$WORK/refusal")"
good linerate down wg1
