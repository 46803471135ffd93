#!/usr/bin/env bash
# timeout: 60
# KillSwitch with ExcludeLAN and without DNS: queries to the local name server do not leave, and `up` and `doctor` report
# this. ExcludedIPs or DNS with the server's address lets them pass.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/neighbour.bash"

cafe
watch_cafe
neighbour_goes_on h2 e2 h1 e1 names address=198.51.100.99,2001:db8::99
wait_for 5 "the name server" listens_udp h2 53
printf 'nameserver 192.168.1.1\nnameserver fd01::1\n' >"$WORK/etc/resolv.conf"
answered() { on h1 python3 -c '
import socket, sys
asked = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
asked.settimeout(5)
asked.sendto(b"\0\7\1\0\0\1\0\0\0\0\0\0\6secret\4test\0\0\1\0\1", (sys.argv[1], 53))
asked.recv(512)' "$1"; } # ADDRESS : the name server there answers a query

questions() { # WHEN : no DNS query leaves
  forget_seen
  programs "${LOCAL[@]}" fe80::1%e1
  wait_for 5 "$1: packets to others than name servers to pass" eval '(($(seen local) > 0))'
  sleep 0.3
  expect "$1: DNS queries that left, and packets outside the tunnel" "0 0" "$(seen names) $(seen beyond)"
}
away() {
  good linerate down wg1
  is_gone wg1
}

for who in linerate wg-quick; do
  for exclude in true auto; do
    tunnel_file wg1 0.0.0.0/0,::/0 "#! KillSwitch = true" "#! ExcludeLAN = $exclude"
    good $who up wg1
    questions "$who: ExcludeLAN = $exclude"
    kill_daemon
    questions "$who: ExcludeLAN = $exclude, without the daemon"
    good $who down wg1
    is_gone wg1
  done
done

say "up and doctor recommend DNS"
good linerate up wg1
said "up" "DNS"
turn linerate doctor wg1
said "doctor" "DNS"
away

say "a name server that the file names is asked"
for line in "#! ExcludedIPs = 192.168.1.1/32, fd01::1" "DNS = 192.168.1.1, fd01::1"; do
  tunnel_file wg1 0.0.0.0/0,::/0 "#! KillSwitch = true" "#! ExcludeLAN = true" "$line"
  good linerate up wg1
  [[ $line != DNS* ]] || ! grep "name server" "$WORK/said" || fail "$line: up warns of names"
  answered 192.168.1.1 || fail "$line: the name server has no answer by IPv4"
  answered fd01::1 || fail "$line: the name server has no answer by IPv6"
  forget_seen
  programs 192.168.1.9 fd01::9 "${PUBLIC[@]}"
  sleep 0.3
  expect "$line: DNS queries to others, and packets outside the tunnel" "0 0" "$(seen names) $(seen beyond)"
  away
done
