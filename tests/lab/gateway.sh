#!/usr/bin/env bash
# heavy: the lab measures
# timeout: 200
# A gateway with rules of others beside the tunnel's: linerate's own and one with the lab's rules are measured, and
# compared with the tunnel alone.
source "$(dirname "$0")/lib.sh"
need nft

record=$FILES/record.json
lab run pair/tcp-1 'routed-rules/tcp-1*' --rounds 1 --seconds 0.5 --only 'no tunnel,linerate,wireguard-go' \
  --output "$record" >"$FILES/table" || { cat "$FILES/table" >&2 && fail "the run was not clean"; }
cat "$FILES/table"
for heads in "wireguard-go  unrouted" "wireguard-go *IPv4"; do
  grep -q "$heads" "$FILES/table" || fail "the table has no column: $heads"
done
for subject in linerate wireguard-go; do
  for scenario in routed-rules/tcp-1 routed-rules/tcp-1-ipv6; do
    for measure in throughput client_cpu_per_gb far_cpu_per_gb machine_cpu_per_gb; do
      expect_at_least "$measure of $subject in $scenario" 0.001 "$(median "$record" $scenario $subject $measure)"
    done
  done
done
