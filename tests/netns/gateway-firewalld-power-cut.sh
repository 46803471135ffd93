#!/usr/bin/env bash
# timeout: 1800
# --fix-firewall on a gateway with firewalld: what a power cut leaves in its files goes with the next `down`, also after an `up`.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"
source "$(dirname "$0")/firewalls.bash"
source "$(dirname "$0")/firewalld.bash"

firewalld_gateway
gateway_file "#! Gateway = up0" "#! Masquerade = both" "#! Inbound = all"

say "after a power cut firewalld has what was opened, and nobody else knows of it"
for verb in "down" "up --fix-firewall"; do
  good linerate up --fix-firewall wg1
  stop_firewalld
  kill_daemon
  rm -rf /run/linerate
  on h1 nft flush ruleset
  start_firewalld
  # shellcheck disable=SC2086 # words
  [[ $verb == down ]] || { good linerate $verb wg1 && new_sessions && reaches c1 198.18.0.1; }
  good linerate down wg1
  is_gone wg1
  firewalls_as_before "a power cut, then $verb"
done
