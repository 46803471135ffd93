#!/usr/bin/env bash
# timeout: 150
# Supervisors have only the privileges they need and lock their memory; names are looked up by a process without any.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
! grep 'does not offer all protection' "$SCENARIO_LOGS/wg2.log" || skip "this kernel or container does not offer all protection"
own_file /etc/nsswitch.conf <<<"hosts: files dns"
own_file /proc/swaps <<<"Filename Type Size Used Priority"
field() { awk -v name="$2:" '$1 == name { print $2 }' "/proc/$1/status"; } # PID FIELD
doctor() { at h1 "$LINERATE" doctor --security "$1" >"$WORK/doctor" 2>&1 || true; }
told() { # PATTERN : by the doctor
  grep -qE -- "$1" "$WORK/doctor" || fail "expected the doctor to say '$1', saw: $(tr '\n' ' ' <"$WORK/doctor")"
  say "doctor: $(grep -E -- "$1" "$WORK/doctor" | head -n 1)"
}
few=0000000000005000 # cap_net_admin and cap_ipc_lock
all=$(awk '$1 == "CapBnd:" { print $2 }' /proc/self/status)
confined() { # IFACE
  local pid
  pid=$(supervisor_of "$1")
  [[ $(field "$pid" CapPrm) == "$few" && $(field "$pid" CapEff) == "$few" && $(field "$pid" CapBnd) == "$few" ]] &&
    [[ $(field "$pid" CapInh) == 0000000000000000 && $(field "$pid" NoNewPrivs) == 1 && $(field "$pid" VmLck) -gt 0 ]]
}
remember

say "a background supervisor, and its resolver"
echo "nameserver 192.0.2.99" >"$WORK/etc/resolv.conf" # nobody: questions wait
ENDPOINT=unknown.example.com:50002 tunnel_file wg1 10.9.0.2/32
good linerate up wg1
wait_for 30 "its supervisor to give up its privileges" confined wg1
resolver_has_nothing() {
  local status
  status=$(cat "/proc/$(pgrep -nf 'linerate resolve$')/status") || return 1
  [[ $(awk '/^Cap(Inh|Prm|Eff|Amb):/ { print $2 }' <<<"$status" | sort -u) == 0000000000000000 ]] && grep -q '^NoNewPrivs:.1' <<<"$status"
}
wait_for 30 "a process without privileges that looks the name up" resolver_has_nothing
: >"$WORK/etc/resolv.conf"
doctor wg1
told "^wg1, its background supervisor: linerate, process $(supervisor_of wg1)$"
told "copy of the file .*  ok$"
expect "what is weak" "" "$(grep fix: "$WORK/doctor" || true)"
own_file /proc/swaps <<<$'Filename Type Size Used Priority\n/dev/nowhere partition 1 0 -2'
doctor wg1
told "copy of the file .*can reach /dev/nowhere .*fix: encrypt the swap"
own_file /proc/swaps <<<"Filename Type Size Used Priority"
before=$(supervisor_of wg1)

say "default routes that have to wait: adding them may include setting name servers, so another supervisor does"
sed -i 's/^AllowedIPs.*/AllowedIPs = 0.0.0.0\/0/' /etc/wireguard/wg1.conf
good linerate reload wg1
wait_for 15 "another supervisor" eval "[[ \$(supervisor_of wg1) != $before && \$(supervisor_of wg1) =~ ^[0-9]+\$ ]]"
waiting=$(supervisor_of wg1)
wait_for 30 "the lock of it" eval "grep -q 'FLOCK .* $waiting ' /proc/locks"
expect "its capabilities" "$all" "$(field "$waiting" CapPrm)"
doctor wg1
told "^  capabilities .*fix: wait: it drops the rest once"
echo "192.0.2.2 unknown.example.com" >>"$WORK/etc/hosts"
wait_for 30 "the default route" eval 'at h1 ip -4 route show table all | grep -q "default dev wg1"'
wait_for 30 "the supervisor to give up its privileges" confined wg1
expect "the supervisor" "$waiting" "$(supervisor_of wg1)"
wait_for 30 "traffic" at h1 ping -n -q -c 1 -W 1 10.9.0.2
good linerate down wg1
is_gone wg1
as_before "down"

say "a service supervisor: it may start the daemon and run commands, which have the limits that it was given"
tunnel_file wg1 10.9.0.2/32 "PostDown = grep CapEff /proc/self/status >$WORK/hook; ulimit -l >>$WORK/hook"
at h1 "$LINERATE" up --supervise wg1 >"$SCENARIO_LOGS/supervise.log" 2>&1 &
wait_for 30 "wg1 to come up" answers h1 wg1
supervisor=$(pgrep -o -f "up --supervise wg1\$")
wait_for 30 "it to lock its memory" eval "[[ \$(field $supervisor VmLck) -gt 0 ]]"
wait_for 30 "the lock of it" eval "grep -q 'FLOCK .* $supervisor ' /proc/locks"
doctor wg1
told "^wg1, its service supervisor: linerate, process $supervisor$"
expect "what is weak" "" "$(grep fix: "$WORK/doctor" || true)"
kill -TERM "$supervisor"
wait "$!" || fail "the service ended with $?"
is_gone wg1
expect "what a command has" "CapEff: $all $(ulimit -l)" "$(xargs <"$WORK/hook")"
as_before "the service"
