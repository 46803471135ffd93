#!/usr/bin/env bash
# `linerate speed`: that the other end's daemon is short of processor time is said from this end.
# timeout: 120
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/speed.bash"

# A control group that may use a twentieth of a processor.
group=linerate-scenario-$BASHPID-$RANDOM
if [[ -e /sys/fs/cgroup/cpu/cpu.cfs_quota_us ]]; then
  root=/sys/fs/cgroup/cpu
  limit() { echo 100000 >"$root/$group/cpu.cfs_period_us" && echo 5000 >"$root/$group/cpu.cfs_quota_us"; }
else
  root=/sys/fs/cgroup
  limit() { echo "5000 100000" >"$root/$group/cpu.max"; }
fi
mkdir "$root/$group" 2>/dev/null || skip "no control groups can be made here"
remove_group() {
  local process
  while read -r process; do echo "$process" >"$root/cgroup.procs" || true; done <"$root/$group/cgroup.procs"
  rmdir "$root/$group"
}
limit 2>/dev/null || { remove_group && skip "control groups have no limit of processor time here"; }
trap remove_group EXIT

two_hosts
tunnel v4
pings h1 10.9.0.2
responder h2 wg2
echo "${PID[wg2]}" >"$root/$group/cgroup.procs"
measures 10.9.0.2 --seconds 3
for way in send receive; do
  holds "$way: the verdict" ".$way.bottleneck.says | startswith(\"bound by a limit of processor time at the far end\")"
  holds "$way: the figures" ".$way.there.limit.processors == 0.05 and .$way.there.limit.usedUp > 0.5 and .$way.here.limit.processors != 0.05"
done

echo "${PID[wg2]}" >"$root/cgroup.procs"
measures 10.9.0.2 --seconds 1
# This machine may have one of its own.
holds "without a limit" '.send.there.limit.processors != 0.05 and (.verdict | contains("limit of processor time") | not)'
