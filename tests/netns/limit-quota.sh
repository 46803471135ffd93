#!/usr/bin/env bash
# timeout: 200
# A peer's quota: it is cut off when it is used up, and what it has used survives a daemon that is killed.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/limits.bash"

two_hosts
tunnel v4
pings h2 10.9.0.1

say "a stream"
quota=5000000
transfer() { echo $(($(received h1 wg1) + $(sent h1 wg1))); }
before=$(transfer)
limits h2 quota=$quota
on h1 bash -c 'timeout 60 nc -l 10.9.0.1 7000 >/dev/null' &
wait_for 5 "nc -l on h1" listens h1 7000
head -c 200000000 /dev/zero | ip netns exec h2 timeout 60 nc -N 10.9.0.1 7000 &
stream=$!
wait_for 12 "the quota to be reached" is_suspended quota
kill "$stream"
used=$(limit quota_used)
expect_at_least "bytes used" $quota "$used"
# How much more it is depends on when the slow path gets a processor.
expect_at_most "bytes used" $((10 * quota)) "$used"
note "$((used - quota)) bytes more than the quota"
expect "bytes that wg shows" "$used" $(($(transfer) - before))
renewed
no_ping h2 10.9.0.1
expect "bytes used after that" "$used" "$(limit quota_used)"
expect "the mode of the files" "600 600" "$(stat -c %a "$WORK"/usage/wg1.usage-{a,b} | xargs)"

say "killed: at once it is not let in again"
kill_server
server
limits h2 quota=$quota
expect "why" quota "$(limit suspended)"
# What was on its way when the limit was reached is counted a moment after the files are written.
expect_at_least "bytes used" $quota "$(limit quota_used)"
renewed
no_ping h2 10.9.0.1
limits h2 quota=$((2 * quota))
renewed
pings h2 10.9.0.1

say "killed in the middle of traffic: at most what was used in the last minute is lost"
on h2 ping -q -n -i 0.2 -w 90 10.9.0.1 >/dev/null || true & # some 1200 bytes a second
sleep 2
early=$(limit quota_used)
sleep 60
kill_server
server
limits h2 quota=$((2 * quota))
expect_at_least "bytes used" "$early" "$(limit quota_used)"

say "ended in the middle of traffic: nothing is lost"
renewed
pings h2 10.9.0.1 -c 20
used=$(limit quota_used)
stop_daemon wg1
server
limits h2 quota=$((2 * quota))
expect_at_least "bytes used" "$used" "$(limit quota_used)"

say "files that are spoilt, and a folder that cannot be made: the tunnel runs, and says so"
stop_daemon wg1
tee "$WORK"/usage/wg1.usage-{a,b} <<<spoilt >/dev/null
server
limits h2 quota=$quota
grep -q "are not whole" "$SCENARIO_LOGS/wg1.log" || fail "it does not say that the files are spoilt"
renewed
pings h2 10.9.0.1
stop_daemon wg1
LINERATE_USAGE=/dev/null/usage server
limits h2 quota=$quota
grep -q "is not kept" "$SCENARIO_LOGS/wg1.log" || fail "it does not say that nothing is kept"
