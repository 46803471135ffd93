#!/usr/bin/env bash
# `linerate run` where something is missing or forbidden: each way is named with what to do, the command is not run, and nothing is left.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/run.bash"

refused() { # PATTERN COMMAND... : it ends with 125, says so, and does not run the command
  local pattern=$1
  shift
  status "$@"
  expect "exit code" 125 "$STATUS" && said "$pattern"
  ! grep -q "the command ran" "$WORK/said" || fail "the command ran"
  ! grep -q "os error" "$WORK/said" || fail "the number of an error: $(cat "$WORK/said")"
  nothing_left
}
ran=(sh -c 'echo the command ran')
run_it=("${as_user[@]}" "$tool" run work "${ran[@]}")
status "${run_it[@]}"
expect "exit code where nothing is forbidden" 0 "$STATUS" && said "the command ran"

say "limits of namespaces, set in a user namespace around it: that of the machine stays as it is"
for limit in user net mnt; do
  refused "user.max_${limit}_namespaces is 0.*sysctl -w user.max_${limit}_namespaces=10000" \
    nsenter --net=/run/netns/h1 setpriv --reuid 1000 --regid 1000 --clear-groups unshare --user --map-root-user sh -c \
    'echo 0 >"/proc/sys/user/max_$1_namespaces" && shift && HOME=$1 XDG_CONFIG_HOME= && export HOME && shift && exec "$@"' \
    - $limit "$WORK/home" "$tool" run work "${ran[@]}"
done

say "a filter of system calls, as in containers"
no_namespaces
refused "cannot make a user namespace: operation not permitted; a filter of system calls.*seccomp=unconfined" \
  "${as_user[@]}" "${FILTERED[@]}" "$tool" run work "${ran[@]}"

say "root without the right to map itself"
refused "cannot make a user namespace: operation not permitted; root needs CAP_SETFCAP" \
  nsenter --net=/run/netns/h1 setpriv --bounding-set -setfcap "$tool" run work "${ran[@]}"

say "no TUN driver for users, and none at all"
chmod 600 "$WORK/tun"
refused "cannot open /dev/net/tun: permission denied.*chmod 666 /dev/net/tun" "${run_it[@]}"
chmod 666 "$WORK/tun"
refused "cannot open /dev/net/tun: no such file.*modprobe tun.*--device /dev/net/tun" \
  unshare --mount sh -c 'mount -t tmpfs none /dev/net && exec "$@"' - "${run_it[@]}"

say "no /etc/resolv.conf to put another over"
refused "cannot replace /etc/resolv.conf: no such file.*make an empty one" \
  unshare --mount sh -c 'mount -t tmpfs none /etc && exec "$@"' - "${run_it[@]}"

say "no daemon, and one that fails"
refused "cannot start /nonexistent" env WG_QUICK_USERSPACE_IMPLEMENTATION=/nonexistent "${run_it[@]}"
refused "starting the tunnel.*false exited with code 1" env WG_QUICK_USERSPACE_IMPLEMENTATION="$(type -P false)" "${run_it[@]}"

say "the port is taken, a name has no address, the file is wrong"
tunnel_file "ListenPort = 50009"
nsenter --net=/run/netns/h1 perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalPort => 50009, Proto => "udp") or die; sleep' &
taker=$!
wait_for 5 "the port to be taken" listens_udp h1 50009
refused "UDP port 50009 is already in use" "${run_it[@]}"
kill $taker
tunnel_file
sed -i 's/^Endpoint.*/Endpoint = nowhere.invalid:50002/' "$config"
refused "nowhere.invalid:50002: no address" "${run_it[@]}"
tunnel_file "Address = 10.9.0.0/33"
refused "work.conf:4" "${run_it[@]}"

say "no DNS: it says so, and no name is looked up"
tunnel_file
run_status work -- getent ahosts elsewhere.example
expect "exit code of getent" 2 "$STATUS" && said "has no DNS"

say "what has no meaning is named"
tunnel_file "PostUp = touch $WORK/home/hook" "FwMark = 7" "Table = off" "DNS = 10.9.0.2"
run_status work -- ping -n -c 1 -W 5 10.9.0.2
expect "exit code of a ping" 0 "$STATUS" && said "ignored: PreUp, PostUp, PreDown, PostDown, FwMark"
nothing_left
