#!/usr/bin/env bash
# timeout: 120
# Rules of others that lead packets past a full tunnel are named by `plan` and `up`; wg-quick's rules come first.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/doctor.bash"

hosts_with_files
address h2 lo 203.0.113.7/32
ip -n h1 route add default via 192.0.2.2
ip -n h1 route add default via 192.0.2.2 table 100
count h2 in beside iifname e2 ip daddr 203.0.113.7
outside() { # WHAT NUMBER : of a ping to 203.0.113.7
  on h2 nft reset counters >/dev/null
  pings h1 203.0.113.7
  expect "$1: pings outside of the tunnel" "$2" "$(counted h2 beside)"
}
tunnel_file wg1 0.0.0.0/0

while read -r -a rule; do
  say "=== ${rule[*]}"
  ip -n h1 rule add "${rule[@]}"
  good linerate plan wg1
  said "plan" "the rule ${rule[1]} \(.ip -4 rule show pref ${rule[1]}.\) comes before those of the tunnel: .* leave through e1"
  good linerate up wg1
  said "up" "the rule ${rule[1]} .* comes before those of the tunnel"
  outside "beside the rule" 3
  bad linerate status wg1 --check
  good linerate status wg1
  said "status" "the rule ${rule[1]} .* comes before those of the tunnel: .* leave through e1"
  doctor h1 wg1
  [[ " $FOUND " == *" route-elsewhere "* ]] || fail "doctor finds '$FOUND'"
  tells "linerate plan"
  ip -n h1 rule del "${rule[@]}"
  outside "without it" 0
  good linerate status wg1 --check
  good linerate down wg1
  is_gone wg1

  ip -n h1 rule add "${rule[@]}"
  good wg-quick up wg1
  outside "wg-quick, beside the rule" 0
  good wg-quick down wg1
  is_gone wg1
  ip -n h1 rule del "${rule[@]}"
done <<'RULES'
pref 1000 lookup 100
pref 1000 iif lo lookup 100
pref 1000 uidrange 0-0 lookup 100
pref 5000 lookup main
RULES

say "=== where it is meant to be"
ip -n h1 rule add pref 20000 lookup 100
good linerate up wg1
! grep -q "comes before" "$WORK/said" || fail "up warns of a rule that comes after: $(cat "$WORK/said")"
outside "a rule that comes after" 0
good linerate down wg1
is_gone wg1
