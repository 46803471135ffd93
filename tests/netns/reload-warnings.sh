#!/usr/bin/env bash
# What a reload cannot apply to a tunnel that is up, it says: hooks, User, Spin, and the first quota.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
tunnel_file wg1 10.9.0.2/32
good linerate up wg1
for change in "PostDown = true|hooks changed; .down. will still run those recorded" "#! User = nobody|User takes effect at the next .up." \
  "#! Spin = 200|Spin takes effect at the next .up."; do
  sed -i "s/^Address/${change%%|*}\n&/" /etc/wireguard/wg1.conf
  good linerate reload wg1
  said "${change%%|*}" "${change#*|}"
  good linerate reload wg1
  said "the same again: User and Spin are said once" "wg1: |hooks"
done
printf '#! Quota = 50G\n# Name = other\n#! Created = 2026-01-01T00:00:00Z\n' >>/etc/wireguard/wg1.conf
good linerate reload wg1
said "the first quota" "kept over restarts only from the next .up. on"
good linerate down wg1
