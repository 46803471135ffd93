#!/usr/bin/env bash
# timeout: 1800
# --fix-firewall on a gateway with firewalld: a `down` that is killed leaves nothing for good.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"
source "$(dirname "$0")/firewalls.bash"
source "$(dirname "$0")/firewalld.bash"

firewalld_gateway
gateway_file "#! Gateway = up0" "#! Masquerade = both" "#! Inbound = all"

say "down is killed, and run again"
length=0
for part in whole 3 7; do
  good linerate up --fix-firewall wg1
  begun=${EPOCHREALTIME/./}
  if [[ $part == whole ]]; then
    good linerate down wg1
    length=$((${EPOCHREALTIME/./} - begun))
  else
    at h1 timeout -s KILL "$(awk "BEGIN { printf \"%.4f\", $length * $part / 10 / 1000000 }")" "$LINERATE" down wg1 >"$WORK/said" 2>&1 || true
    turn linerate down wg1
  fi
  is_gone wg1
  firewalls_as_before "down killed after $part of 10 parts, then down"
done
