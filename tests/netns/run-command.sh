#!/usr/bin/env bash
# `linerate run` for an ordinary user: the command has its exit code, signals, terminal, environment and files, and nothing is left.
source "$(dirname "$0")/lib.sh"
need script
source "$(dirname "$0")/run.bash"

say "the exit code is the command's, and its own are apart"
for code in 0 1 7 125; do
  run_status work -- sh -c "exit $code"
  expect "exit code" $code "$STATUS"
done
run_status work sh -c 'kill -KILL $$'
expect "exit code of a command that was killed" 137 "$STATUS"
run_status work -- /nonexistent
expect "exit code without the command" 127 "$STATUS" && said "cannot run /nonexistent"
run_status work -- /etc
expect "exit code of what cannot be executed" 126 "$STATUS"
run_status nosuch -- true
expect "exit code without the file" 125 "$STATUS" && said "$WORK/home/.config/linerate/nosuch.conf' does not" && said "/etc/wireguard/nosuch.conf'"
run_status "$config" -- true
expect "exit code by the file's path" 0 "$STATUS"
nothing_left

say "what the command has"
expect "environment" "a b" "$(NAME="a b" run work -- printenv NAME)"
expect "standard input" "a line" "$(echo "a line" | run work -- cat)"
expect "directory" /usr "$(cd /usr && run work -- pwd)"
expect "user and group" "1000 1000" "$(run work -- sh -c 'echo $(id -u) $(id -g)')"
expect "umask" 0027 "$(umask 027 && run work -- sh -c umask)"
expect "descriptors" "$("${as_user[@]}" ls /proc/self/fd | xargs)" "$(run work -- ls /proc/self/fd | xargs)"
expect "capabilities" "0000000000000000" "$(run work -- awk '/^Cap(Inh|Prm|Eff|Amb)/ { print $2 }' /proc/self/status | sort -u)"
expect_at_least "most bytes in a TCP connection's buffer to send" 16777216 \
  "$(run work -- cut -f 3 /proc/sys/net/ipv4/tcp_wmem)"
expect "interfaces" "lo work" "$(run work -- sh -c 'awk -F: "NR > 2 { print \$1 }" /proc/net/dev' | sort | xargs)"
expect "name servers" "nameserver 10.9.0.2 search corp.example" "$(run work -- grep -v '^#' /etc/resolv.conf | xargs)"
run_status work -- perl -e 'exit(wait() == -1 ? 0 : 1)'
expect "exit code of a command that waits for all of its children" 0 "$STATUS"
# shellcheck disable=SC2016
status "${as_user[@]}" perl -e 'syscall(shift, 36, 1, 0, 0, 0) == 0 or die "prctl: $!"; exec @ARGV or die "exec: $!"' $prctl \
  "$tool" run work -- perl -e 'wait() == -1 or exit 1; my $is_reaper = pack("i", 0);
    syscall(shift, 37, $is_reaper, 0, 0, 0) == 0 or die "prctl: $!"; exit(unpack("i", $is_reaper) == 1 ? 0 : 2)' $prctl
expect "exit code of one that takes in orphans (PR_SET_CHILD_SUBREAPER), and waits for all" 0 "$STATUS"
run_status work -- ping -n -c 1 -W 5 10.9.0.2
expect "exit code of a ping" 0 "$STATUS"
run_status work -- ping -n -c 1 -W 5 fd09::2
expect "exit code of a ping over IPv6" 0 "$STATUS"
LOG_LEVEL=warn run_status work -- printenv LOG_LEVEL
expect "exit code with a LOG_LEVEL for the command" 0 "$STATUS" && said "^warn$"
LINERATE_LOG_LEVEL=info run_status work -- true
expect "exit code with a daemon that logs" 0 "$STATUS" && said "UAPI|listening|work"
LINERATE_SPIN=long run_status work -- true
expect "exit code with a bad setting of the daemon" 125 "$STATUS" && said LINERATE_SPIN
for filter in off log; do
  LINERATE_SECCOMP=$filter run_status work -- ping -n -c 1 -W 5 10.9.0.2
  expect "exit code of a ping with LINERATE_SECCOMP=$filter" 0 "$STATUS"
done
nothing_left

say "programs below /run, as on a removable disk"
mkdir -p /run/media/programs && mount --bind "$PROGRAMS" /run/media/programs
status "${as_user[@]}" /run/media/programs/linerate run work -- ping -n -c 1 -W 5 10.9.0.2
expect "exit code" 0 "$STATUS"
nothing_left

say "root has no more rights in there than another user"
mkdir "$WORK/root"
cp "$config" "$WORK/root/work.conf"
as_root() { nsenter --net=/run/netns/h1 "$tool" run "$WORK/root/work.conf" "$@"; }
expect "capabilities" "0000000000000000" "$(as_root -- sh -c 'awk "/^Cap(Inh|Prm|Eff|Amb)/ { print \$2 }" /proc/self/status' | sort -u)"
as_root -- umount /etc/resolv.conf 2>"$WORK/said" && fail "root took the name servers of the tunnel away"
expect "name servers" "nameserver 10.9.0.2 search corp.example" "$(as_root -- grep -v '^#' /etc/resolv.conf | xargs)"
as_root -- ping -n -c 1 -W 5 10.9.0.2 >"$WORK/said" || fail "no ping of root"
nothing_left

if type -P ssh >/dev/null; then
  say "ssh takes settings that root has included for everybody, which belong to nobody in there"
  other_ssh=(unshare --mount sh -c 'mount -t tmpfs -o mode=755 none /etc/ssh && mkdir /etc/ssh/ssh_config.d &&
    echo "Include /etc/ssh/ssh_config.d/*.conf" >/etc/ssh/ssh_config &&
    echo "Port 2222" >/etc/ssh/ssh_config.d/10-port.conf && exec "$@"' -)
  status "${other_ssh[@]}" "${as_user[@]}" "$tool" run work -- ssh -G host.example
  expect "exit code of ssh -G" 0 "$STATUS" && said "^port 2222$"
  nothing_left
fi

say "signals reach the command"
"${as_user[@]}" "$tool" run work -- sh -c 'trap "echo hangup; exit 3" HUP; echo ready; while :; do sleep 0.1; done' >"$WORK/said" 2>&1 &
command=$!
wait_for 10 "the command" grep -q ready "$WORK/said"
kill -HUP $command
STATUS=0 && wait $command || STATUS=$?
expect "exit code that a handler chose" 3 "$STATUS" && said hangup
"${as_user[@]}" "$tool" run work -- sleep 100 &
command=$!
wait_for 10 "sleep" pgrep -u 1000 -x sleep
kill -TERM $command
STATUS=0 && wait $command || STATUS=$?
expect "exit code after SIGTERM" 143 "$STATUS"
nothing_left
"${as_user[@]}" "$tool" run work -- sleep 100 &
command=$!
wait_for 10 "sleep" pgrep -u 1000 -x sleep
kill -KILL $command
STATUS=0 && wait $command || STATUS=$?
expect "exit code after SIGKILL" 137 "$STATUS"
nothing_left

say "the terminal"
mkfifo "$WORK/keys"
rm "$WORK/said" # of the command before
sleep 100 >"$WORK/keys" &
holder=$!
# shellcheck disable=SC2016
script='trap "echo interrupted; exit 9" INT; test -t 0 && test -t 1 && echo a terminal; stty size; echo ready; while :; do sleep 0.1; done'
# It answers ^C as a shell's command in the foreground would. `exec`: a shell that waited for it would die of the ^C.
(cd / && exec script -qec "stty rows 33 cols 77; exec $(printf '%q ' "${as_user[@]}" "$tool" run work -- sh -c "$script")" /dev/null <"$WORK/keys" >"$WORK/said" 2>&1) &
terminal=$!
wait_for 10 "the command" grep -q ready "$WORK/said"
printf '\003' >"$WORK/keys"
STATUS=0 && wait $terminal || STATUS=$?
kill $holder
expect "exit code after ^C" 9 "$STATUS"
said "a terminal" && said "33 77" && said interrupted
nothing_left

say "two at once have a tunnel and a network each"
"${as_user[@]}" "$tool" run work -- sleep 100 &
first=$!
wait_for 10 "sleep" pgrep -u 1000 -x sleep
run_status work -- sh -c 'test "$(readlink /proc/self/ns/net)" != "$(readlink /proc/'$first'/ns/net)"'
expect "exit code of the second" 0 "$STATUS"
one_daemon() { (($(daemons | wc -l) == 1)); }
wait_for 10 "the daemon of the second alone to end" one_daemon
kill $first
wait $first || true
nothing_left

say "what the command leaves running has no network, and no daemon"
run_status work -- sh -c 'setsid sleep 100 >/dev/null 2>&1 & true'
expect "exit code" 0 "$STATUS"
wait_for 10 "the daemon to end" no_daemons
left=$(pgrep -u 1000 -x sleep)
expect "its interfaces" lo "$(nsenter --net="/proc/$left/ns/net" ip -o link | awk -F'[ @:]+' '{ print $2 }' | xargs)"
kill "$left"
wait_for 5 "it to end" bash -c '! pgrep -u 1000'
nothing_left
