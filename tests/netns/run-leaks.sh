#!/usr/bin/env bash
# What a command under `linerate run` sends leaves by the tunnel or not at all: names, packets; with a silent peer, and a killed daemon.
source "$(dirname "$0")/lib.sh"
need tcpdump getent nc
source "$(dirname "$0")/run.bash"
answer_names

# Services of the host that look names up, and say when they are asked. The C library asks nscd before all else.
service() { # SOCKET
  mkdir -p "${1%/*}"
  perl -MIO::Socket::UNIX -e '
    $| = 1;
    my $socket = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 9) or die "$ARGV[0]: $!";
    while (my $client = $socket->accept) { sysread($client, my $question, 512); print "$ARGV[0]: $question\n" }' "$1" >>"$WORK/asked" &
  wait_for 5 "the service at $1" test -S "$1"
  chmod 666 "$1"
}
services=(/run/nscd/socket /run/systemd/resolve/io.systemd.Resolve /run/avahi-daemon/socket)
for socket in "${services[@]}"; do service "$socket"; done
echo "hosts: mdns4_minimal resolve files dns" >"$WORK/etc/nsswitch.conf"
"${as_user[@]}" timeout 5 getent ahosts elsewhere.example >/dev/null || true
grep -qa elsewhere.example "$WORK/asked" || fail "getent asks no nscd outside of a tunnel: so nothing would be seen"
asked() { grep -ac elsewhere.example "$WORK/asked" || true; } # nscd is asked for users as well
before=$(asked)
capture

say "no service of the host is asked for names"
expect "its sockets" "" "$(run work -- sh -c 'for socket; do ! test -e "$socket" || echo "$socket"; done' - "${services[@]}")"
run_status work -- getent ahosts elsewhere.example
expect "exit code of getent" 0 "$STATUS"
expect "questions that services of the host have got" "$before" "$(asked)"

say "nor where /etc/resolv.conf is one of theirs, which they replace while the command runs"
stub=/run/systemd/resolve/stub-resolv.conf
echo "nameserver 192.0.2.2" >$stub
other_etc=(unshare --mount sh -c "mount -t tmpfs -o mode=755 none /etc && ln -s $stub /etc/resolv.conf && echo 'hosts: resolve dns' >/etc/nsswitch.conf"' && exec "$@"' -)
"${other_etc[@]}" "${as_user[@]}" "$tool" run work -- sh -c 'echo ready; read -r line; getent ahosts elsewhere.example && cat /etc/resolv.conf' \
  < <(wait_for 10 "the command" grep -q ready "$WORK/said"; echo "nameserver 192.0.2.3" >$stub.new && mv $stub.new $stub; echo go) >"$WORK/said"
said "^10.9.0.2 " && said "^nameserver 10.9.0.2$"
expect "questions that services of the host have got" "$before" "$(asked)"

say "names are asked through the tunnel"
expect "the address of a name" "10.9.0.2" "$(run work -- getent ahostsv4 intranet.example | awk 'NR == 1 { print $1 }')"
grep -qx intranet.example "$WORK/names" || fail "the server in the tunnel was not asked"
expect "by a name of the search domain" "10.9.0.2" "$(run work -- getent ahostsv4 host | awk 'NR == 1 { print $1 }')"
grep -qx host.corp.example "$WORK/names" || fail "the search domain was not used: $(cat "$WORK/names")"
run_status work -- ping -n -c 1 -W 5 10.9.0.2
expect "exit code of a ping" 0 "$STATUS"

say "a stream with all offloads"
head -c 20000000 /dev/urandom >"$WORK/file"
chmod 644 "$WORK/file"
ip netns exec h2 timeout 60 nc -l 10.9.0.2 7000 >"$WORK/arrived" </dev/null &
server=$!
wait_for 5 "nc -l" listens h2 7000
run work -- bash -c "exec nc -N 10.9.0.2 7000" <"$WORK/file"
wait $server
expect "sha256 of what arrived" "$(sha256sum <"$WORK/file")" "$(sha256sum <"$WORK/arrived")"

say "the peer is silent"
stop_daemon wg2
for command in "ping -n -c 2 -W 1 10.9.0.2" "ping -n -c 1 -W 1 192.0.2.2" "ping -n -c 1 -W 1 2001:db8::2" "timeout 3 getent ahosts elsewhere.example"; do
  run_status work -- $command
  ((STATUS != 0)) || fail "$command succeeded: $(cat "$WORK/said")"
done
wait_for 10 "the daemon to end" no_daemons
nothing_escaped

say "the daemon is killed"
mkfifo "$WORK/go"
exec 3<>"$WORK/go"
"${as_user[@]}" "$tool" run work -- bash -c '
  echo ready; read -r
  ping -n -c 1 -W 1 10.9.0.2 && exit 1
  ping -n -c 1 -W 1 192.0.2.2 && exit 2
  ping -n -c 1 -W 1 2001:db8::2 && exit 3
  timeout 3 getent ahosts elsewhere.example && exit 4
  exit 77' <"$WORK/go" >"$WORK/said" 2>&1 &
command=$!
wait_for 10 "the command" grep -q ready "$WORK/said"
daemon=$(daemons)
[[ -n $daemon ]] || fail "there is no daemon"
kill -KILL "$daemon"
wait_for 5 "the daemon to be gone" no_daemons
echo >&3
STATUS=0 && wait $command || STATUS=$?
expect "exit code of the command: no packet came back" 77 "$STATUS"
nothing_escaped

say "the tool is killed while it sets up: no daemon stays"
for delay in 0.01 0.03 0.06 0.1 0.2; do
  "${as_user[@]}" "$tool" run work -- sleep 100 2>/dev/null &
  command=$!
  sleep $delay
  kill -KILL $command 2>/dev/null || true
  wait $command 2>/dev/null || true
  wait_for 10 "the daemon to end" no_daemons
done
wait_for 5 "all of it to end" bash -c '! pgrep -u 1000'
nothing_escaped
