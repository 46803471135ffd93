#!/usr/bin/env bash
# D6, D7: when a command fails on the way up, `linerate` runs those for the way down that undo the others, and wg-quick
# runs none, as the original; on the way down, all else is done.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
effect=$WORK/effect
left() { if [[ -e $effect ]]; then echo yes; else echo no; fi; }

say "D6: PostUp fails"
failing_up() { tunnel_file wg1 10.9.0.2/32 "$@" "PreUp = touch $effect; echo %i >>$WORK/order" "PostUp = exit 7" "PostDown = rm $effect"; }
failing_up
if has_original; then
  bad original up wg1
  no_link wg1 || fail "the original: expected no interface, there is one"
  expect "the original: the effect of PreUp is left" yes "$(left)"
  rm "$effect"
fi
for who in wg-quick linerate; do
  failing_up
  remember
  bad $who up wg1
  [[ $who == linerate ]] || expect "$who: status" 7 "$STATUS"
  said "$who" "exit 7"
  expect "$who: the effect of PreUp is left" $([[ $who == wg-quick ]] && echo yes || echo no) "$(left)"
  rm -f "$effect"
  as_before "$who up that failed"

  failing_up "#! OnHookError = warn"
  good $who up wg1
  said "$who" "Warning: .*exit 7"
  pings h1 10.9.0.2
  good $who down wg1
  is_gone wg1
  expect "$who: the effect of PreUp is left" no "$(left)"
  as_before "$who down"
done

say "PreUp fails"
tunnel_file wg1 10.9.0.2/32 "PreUp = exit 7" "PreDown = touch $effect" "PostDown = touch $effect"
for who in original wg-quick linerate; do
  [[ $who != original ]] || has_original || continue
  bad $who up wg1
  expect "$who: PostDown was run" $([[ $who == linerate ]] && echo yes || echo no) "$(left)"
  rm -f "$effect"
done

say "D7: PreDown fails"
tunnel_file wg1 10.9.0.2/32 "PreUp = touch $effect" "PreDown = exit 7" "PreDown = touch $effect-2" "PostDown = rm $effect"
if has_original; then
  good original up wg1
  bad original down wg1
  has_link wg1 || fail "the original: expected the interface to be left, it is gone"
  rm "$effect"
  new_h1
fi
for who in wg-quick linerate; do
  rm -f "$effect-2"
  remember
  good $who up wg1
  bad $who down wg1
  said "$who" "exit 7"
  is_gone wg1
  expect "$who: the effect of PreUp is left" no "$(left)"
  [[ -e $effect-2 ]] || fail "$who: the command after the one that failed was not run"
  as_before "$who down"
done
