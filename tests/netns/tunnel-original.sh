#!/usr/bin/env bash
# What the original wg-quick brought up, ours takes down, and the other way round; what either leaves does not disturb the other.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
has_original || skip "wg-quick and wireguard-go are not both installed"

hosts_with_files
for allowed in 10.9.0.2/32,192.168.78.0/24 0.0.0.0/0,::/0; do
  tunnel_file wg1 $allowed "PostUp = touch $WORK/effect" "PostDown = rm $WORK/effect"
  remember
  for turns in "original up, wg-quick down" "wg-quick up, original down" "original up, linerate down" \
    "wg-quick up, original down, original up, wg-quick down" "wg-quick up, linerate down" "linerate up, wg-quick down"; do
    while IFS= read -r turn; do
      # shellcheck disable=SC2086
      good ${turn# } wg1
      if [[ $turn == *up ]]; then pings h1 10.9.0.2; else is_gone wg1; fi
    done < <(tr ',' '\n' <<<"$turns")
    # Who did not write a ledger does not remove it.
    [[ $turns == *"original down" ]] && rm -f /run/linerate/wg1.{json,conf}
    as_before "$turns"
    [[ ! -e $WORK/effect ]] || fail "$turns: PostDown was not run"
  done
done

say "a reload of what the original brought up is refused with a reason"
good original up wg1
bad linerate reload wg1
said "reload" "was not brought up by linerate"
good wg-quick save wg1
pings h1 10.9.0.2
good linerate down wg1
is_gone wg1
