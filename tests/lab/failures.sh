#!/usr/bin/env bash
# heavy: the lab measures
# timeout: 300
# The row of a subject that cannot be measured says why, the others go on, nothing is left behind, and the exit code is 1.
source "$(dirname "$0")/lib.sh"

run() { lab run pair/tcp-1 --rounds 1 --seconds 0.5 "$@"; }
exit_code() { local code=0 && "$@" || code=$? && echo "$code" >"$FILES/code"; }

# A daemon that ends at once, one that does nothing, and one whose datagrams are dropped.
printf '#!/bin/sh\nexec sleep 60\n' >"$FILES/mute"
cat >"$FILES/unreachable" <<END
#!/bin/sh
nft "add table inet unreachable; add chain inet unreachable in { type filter hook input priority 0; }; add rule inet unreachable in udp dport 51820 drop"
exec $TUNNEL_DAEMON -f "\$1"
END
# And one that leaves its daemon behind when it is ended itself: the next one must not find it there.
printf '#!/bin/sh\n%s -f "$1"\n' "$TUNNEL_DAEMON" >"$FILES/parent"
chmod +x "$FILES/unreachable" "$FILES/mute" "$FILES/parent"
exit_code run --subject "dead=false" --subject "mute=$FILES/mute {iface}" --subject "unreachable=$FILES/unreachable {iface}" \
  --subject "parent=$FILES/parent {iface}" --only dead,mute,unreachable,parent,linerate --output "$FILES/record.json" >"$FILES/table"
cat "$FILES/table"
expect "exit code with rows that failed" 1 "$(cat "$FILES/code")"
for name in dead mute unreachable; do grep -q "$name was not measured: round 1: " "$FILES/table" || fail "$name has no reason"; done
for name in linerate parent; do
  expect_at_least "throughput of $name, which works" 1 "$(median "$FILES/record.json" pair/tcp-1 $name throughput)"
done

# No iperf3.
mkdir "$FILES/bin"
for tool in ip unshare true nft sh env strace ethtool; do
  file=$(type -P "$tool") && ln -s "$file" "$FILES/bin/$tool"
done
PATH=$FILES/bin exit_code run --only linerate --output "$FILES/none.json" >"$FILES/table"
expect "exit code without iperf3" 1 "$(cat "$FILES/code")"
grep -q "iperf3 is not installed" "$FILES/table" || fail "iperf3 is not named: $(cat "$FILES/table")"

# A full disk: the figures are on the terminal, and the half-written file is gone.
mkdir "$FILES/small" && mount -t tmpfs -o size=4k tmpfs "$FILES/small"
head -c 4096 /dev/zero >"$FILES/small/full"
exit_code run --only linerate --output "$FILES/small/record.json" >"$FILES/table" 2>"$FILES/words"
expect "exit code with a full disk" 1 "$(cat "$FILES/code")"
grep -q "cannot write $FILES/small/record.json" "$FILES/words" || fail "the full disk is not named: $(cat "$FILES/words")"
grep -q "^linerate" "$FILES/table" || fail "the figures were lost with the disk"
expect "files on the full disk" full "$(ls "$FILES/small")"

# A place that the lab covers.
exit_code run --only linerate --output /run/record.json 2>"$FILES/words"
grep -q "the lab mounts its own /run" "$FILES/words" || fail "a record below /run was not refused: $(cat "$FILES/words")"

# A machine that allows no namespaces: here one whose limit is zero.
code=0
unshare --user --map-root-user sh -c "echo 0 >/proc/sys/user/max_net_namespaces && exec \"$LINERATE\" lab run pair/tcp-1" \
  2>"$FILES/words" || code=$?
expect "exit code without namespaces" 1 "$code"
grep -q "create namespaces" "$FILES/words" || fail "nobody is told what is missing: $(cat "$FILES/words")"

# Interrupted in the middle.
before=$(pgrep -c . || true)
"$LINERATE" lab run pair/tcp-1 --rounds 9 --only linerate --linerated "$TUNNEL_DAEMON" --output "$FILES/never.json" \
  >/dev/null 2>"$FILES/words" &
pid=$!
wait_for 20 "a daemon at work" pgrep -x linerated
kill -INT "$pid"
code=0 && wait "$pid" || code=$?
expect "exit code of an interrupted run" 130 "$code"
grep -q "no process and no interface is left behind" "$FILES/words" || fail "not said: $(cat "$FILES/words")"
wait_for 5 "the processes to be gone" eval '(($(pgrep -c . || true) <= before))'
expect "files of a run that was interrupted before its first measurement" 0 "$(find "$FILES" -name 'never.json*' | wc -l)"
