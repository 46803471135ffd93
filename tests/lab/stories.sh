#!/usr/bin/env bash
# heavy: the lab measures
# timeout: 500
# Each of the five field reports can be measured again: its own figures and ours stand in one table.
source "$(dirname "$0")/lib.sh"

story() { # NUMBER PATTERN... : what the table has to have
  local number=$1 pattern
  shift
  lab story "$number" --rounds 1 --seconds 0.5 --probes 100 --only 'no tunnel,linerate' --output "$FILES/$number.json" |
    tee "$FILES/story"
  grep -q "Not this machine" "$FILES/story" || fail "story $number does not say whose figures are whose"
  for pattern; do grep -Eq "$pattern" "$FILES/story" || fail "story $number lacks: $pattern"; done
}
story 1 '^published: wireguard-go +554 +423 +210358' '^linerate( +[0-9]+){7}$'
story 2 '^published: encrypt, before the patch +992858 +6274830 +13.7' '^decrypt, linerate, tcp-1 +[0-9]+ +[0-9]+ +[0-9.]+$'
story 4 '^IPv6, 1 stream +422 +341 +714 +4250 +[0-9]+ +[0-9]+$' '^IPv4, 4 streams, idle policies +689 +551 +869 +[0-9]+$'
story 5 '^published: kernel module +3.10 +0.500' '^linerate +[0-9.]+ +[0-9.]+ +[0-9]+$'
