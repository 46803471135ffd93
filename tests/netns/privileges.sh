#!/usr/bin/env bash
# A daemon that runs as root and one that runs as nobody have only what docs/privileges.md lists, and work with that.
source "$(dirname "$0")/lib.sh"
need setpriv

setpriv --reuid nobody true 2>/dev/null || skip "no right to become nobody (run it as root)"

counter() { printf 'stats=1\n\n' | uapi "$1" | awk -F= -v name="$2" '$1 == name { print $2 }'; } # IFACE NAME
status() { awk -v name="$2:" '$1 == name { $1 = ""; print substr($0, 2) }' "/proc/${PID[$1]}/status"; } # IFACE FIELD
names() { # HEXADECIMAL SET : the capabilities in it
  local bit all=(chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable
    net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace
    sys_pacct sys_admin)
  for bit in "${!all[@]}"; do ((16#$1 >> bit & 1)) && printf '%s ' "${all[bit]}"; done
  ((16#$1 >> ${#all[@]} == 0)) || printf 'and more'
}
has() { # IFACE USER CAPABILITIES
  local set
  expect "user of $1" "$2 $2 $2 $2" "$(status "$1" Uid)"
  (($2 == 0)) || expect "groups of $1" "" "$(status "$1" Groups)"
  for set in CapPrm CapEff CapBnd; do expect "$set of $1" "$3 " "$(names "$(status "$1" $set)")"; done
  for set in CapInh CapAmb; do expect "$set of $1" 0000000000000000 "$(status "$1" $set)"; done
  expect "new privileges of $1" "1 2" "$(status "$1" NoNewPrivs) $(status "$1" Seccomp)"
  expect "threads of $1 without the filter" "" "$(grep -L '^Seccomp:.2' /proc/"${PID[$1]}"/task/*/status)"
  expect "core files of $1" "0 0" "$(awk '/^Max core/ { print $5, $6 }' "/proc/${PID[$1]}/limits")"
  expect "owner of /proc/PID/mem of $1" root "$(stat -c %U "/proc/${PID[$1]}/mem")"
  expect "owner and rights of the socket of $1" "root 700" "$(stat -c '%U %a' "/run/wireguard/$1.sock")"
}
kept=(net_bind_service net_admin ipc_lock sys_admin)

host inside
two_hosts
key h1 h2
daemon h1 wg1
daemon h2 wg2 "$TUNNEL_DAEMON" -f --user nobody
! grep 'does not offer all protection' "$SCENARIO_LOGS/wg1.log" || skip "this kernel or container does not offer all protection"
has wg1 0 "${kept[*]}"
has wg2 "$(id -u nobody)" "dac_override ${kept[*]}"

say "traffic, another mark and another port, one below 1024"
wire v4
pings h1 10.9.0.2
for end in "h1 wg1 h2" "h2 wg2 h1"; do
  read -r at iface other <<<"$end"
  on "$at" wg set "$iface" fwmark 7 listen-port 443
  expect "mark and port of $iface" "0x7 443" "$(on "$at" wg show "$iface" fwmark) $(on "$at" wg show "$iface" listen-port)"
  on "$other" wg set "wg${other#h}" peer "$(public "$at")" endpoint "$(outer "$at" "e${at#h}" v6):443"
  pings "$at" "10.9.0.${other#h}"
done

say "an interface that is moved is followed"
move() { # FROM IFACE TO ADDRESS
  ip -n "$1" link set "$2" netns "$3"
  wg_address "$3" "$2" "$4"
  wait_for 5 "the port of $2 to be open where it was made" listens_udp "h${2#wg}" 443
}
# Often enough for the allocator to give memory back.
for _ in {1..20}; do
  move h1 wg1 inside 10.9.0.1/24
  move inside wg1 h1 10.9.0.1/24
done
for end in 1 2; do
  # The end that was moved sends first: it has lost its sessions, and the other end does not know.
  move h$end wg$end inside 10.9.0.$end/24
  pings inside 10.9.0.$((3 - end))
  sleep 0.05 # a peer takes a second initiation only 20 ms after the first
  move inside wg$end h$end 10.9.0.$end/24
  pings h$end 10.9.0.$((3 - end))
done

say "what is in force, as linerate tells it"
for end in "h1 wg1" "h2 wg2"; do
  read -r at iface <<<"$end"
  on "$at" "$LINERATE" doctor --security "$iface" | tee "$WORK/doctor"
  expect "protections of $iface that are as they should be" 9 "$(grep -c '  ok$' "$WORK/doctor")"
  on "$at" "$LINERATE" doctor --security "$iface" --json >"$WORK/doctor.json" || fail "doctor --json of $iface ended with $?"
  ! grep -q '"good": false' "$WORK/doctor.json" || fail "doctor --json of $iface finds a fault"
  expect "refused calls of $iface" 0 "$(counter "$iface" system_calls_refused)"
done

say "one of nobody's in the background; a second one is refused; each takes its socket along"
on h2 "$TUNNEL_DAEMON" --user nobody wg3
expect "user of the one in the background" nobody "$(stat -c %U "/proc/$(pgrep -f -- '--user=nobody wg3')")"
expect_failure "a second daemon" on h1 "$TUNNEL_DAEMON" -f --user nobody wg3
ip -n h2 link del wg3
wait_for 5 "the socket of wg3 to go" test ! -e /run/wireguard/wg3.sock
stop_daemon wg1
stop_daemon wg2
expect "sockets left" "" "$(ls /run/wireguard)"

say "an unknown user is refused, and the log says when the filter is off"
expect_failure "a user that is not there" on h1 "$TUNNEL_DAEMON" -f --user nobody-of-that-name wg1
LINERATE_SECCOMP=off daemon h1 wg1
grep -q 'LINERATE_SECCOMP: no system call is refused' "$SCENARIO_LOGS/wg1.log" || fail "the log does not say that there is no filter"
expect "the filter of a daemon with LINERATE_SECCOMP=off" 0 "$(status wg1 Seccomp)"
expect_failure "doctor --security that has found something" on h1 "$LINERATE" doctor --security wg1
{ on h1 "$LINERATE" doctor --security wg1 || true; } | grep -q 'system calls .*fix: ' || fail "doctor does not say that there is no filter"

say "without the filter less is kept, and the tunnel works"
LINERATE_SECCOMP=off daemon h2 wg2 "$TUNNEL_DAEMON" -f --user nobody
for iface in wg1 wg2; do
  for set in CapPrm CapEff; do
    expect "$set of $iface without the filter" "net_bind_service net_admin ipc_lock " "$(names "$(status $iface $set)")"
  done
done
grep -q "an interface moved to another namespace is not followed" "$SCENARIO_LOGS/wg1.log" || fail "the log does not say what is missing"
wire v4
pings h1 10.9.0.2
for end in "h1 wg1" "h2 wg2"; do
  read -r at iface <<<"$end"
  on "$at" wg set "$iface" fwmark 8 listen-port 444
  expect "mark and port of $iface" "0x8 444" "$(on "$at" wg show "$iface" fwmark) $(on "$at" wg show "$iface" listen-port)"
done
