#!/usr/bin/env bash
# timeout: 120
# doctor tells what makes a tunnel slow: offloads and ciphers that are not used, buffers that overflow, a limit of processor
# time; and of peers that a NAT forgets, and of clocks.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/doctor.bash"
source "$(dirname "$0")/late-clock.bash"
need perl
MACHINE='^(confinement-weak|cpu-stolen|cpu-governor|one-thread-full|receive-on-one-core)$'

host h1 h2
cable h1 e1 h2 e2
address h1 e1 192.168.50.1/24
address h2 e2 192.0.2.2/24
ip -n h1 route add 192.0.2.0/24 dev e1
ip -n h2 route add 192.168.50.0/24 dev e2
key h1 h2
late 0
on_clock() { daemon h1 wg1 "${by_late_clock[@]}" "$TUNNEL_DAEMON" -f; }
on_clock
daemon h2 wg2
wire v4
doctor h1 wg1
[[ $FOUND != offload* ]] || skip "this kernel has not all offloads: $FOUND"
healthy "a tunnel with all offloads" h1 wg1

say "offloads and ciphers"
again() { # [VARIABLE=VALUE...] : the daemon of h1 with these variables
  on h1 wg showconf wg1 >"$WORK/wg1.conf"
  stop_daemon wg1
  daemon h1 wg1 env "$@" "$TUNNEL_DAEMON" -f
  configured
}
configured() {
  on h1 wg setconf wg1 "$WORK/wg1.conf"
  wg_address h1 wg1 10.9.0.1/24 fd09::1/64
  wait_for 5 "wg1 to open its port" listens_udp h1 50001
  forget h2 wg2
}
again LINERATE_OFFLOADS=-tso,-uso,-udp_gso,-udp_gro
finds "no offloads" h1 wg1 offload-tun-missing offload-udp-missing
again LINERATE_AEAD=portable
finds "another implementation of the cipher" h1 wg1 cipher-slow
tells "unset LINERATE_AEAD"

say "buffers"
again
healthy "as before" h1 wg1
kill -STOP "${PID[wg1]}"
# More than the buffer holds, to the stopped daemon.
ip netns exec h2 timeout 60 perl -MIO::Socket::INET -e '
  my $socket = IO::Socket::INET->new(Proto => "udp", PeerAddr => "192.168.50.1:50001") or die;
  $socket->send("x" x 1200) for 1 .. 200000' &
sender=$!
dropped() { on h1 awk '$2 ~ /:C351$/ && $13 > 200 { found = 1 } END { exit !found }' /proc/net/udp; }
wait_for 60 "the buffer to overflow" dropped
kill $sender 2>/dev/null || true
wait $sender 2>/dev/null || true
kill -CONT "${PID[wg1]}"
finds "a buffer that has overflowed" h1 wg1 socket-buffer-drops

say "a limit of processor time"
again
groups=/sys/fs/cgroup
[[ -e $groups/cgroup.controllers ]] || groups=/sys/fs/cgroup/cpu
group=$(mktemp -d "$groups/linerate-XXXXXX" 2>/dev/null || true)
subtree=$groups/cgroup.subtree_control added=
remove_group() {
  local process
  while read -r process; do echo "$process" >"$groups/cgroup.procs" || true; done <"$group/cgroup.procs"
  rmdir "$group"
  # Another run of this may use it.
  [[ -z $added ]] || compgen -G "$groups/linerate-*" >/dev/null || echo -cpu >"$subtree" 2>/dev/null || true
}
[[ -z $group ]] || trap remove_group EXIT
if [[ -n $group && -e $subtree && " $(cat "$subtree") " != *" cpu "* ]] && echo +cpu >"$subtree" 2>/dev/null; then added=1; fi
limit_group() { # PERCENT : of a processor, by either version of control groups
  if [[ -e $group/cpu.max ]]; then echo "${1}000 100000" >"$group/cpu.max"; else echo "${1}000" >"$group/cpu.cfs_quota_us"; fi
}
if [[ -n $group ]] && limit_group 20 2>/dev/null && echo "${PID[wg1]}" >"$group/cgroup.procs"; then
  finds "a daemon with a limit" h1 wg1 cpu-limited
  tells "the daemon may use 0.20 of"
  tells "CPUQuota="
  if (($(nproc) > 1)); then
    # As in a container, where doctor is as limited as the daemon.
    limit_group 100
    echo $$ >"$group/cgroup.procs"
    finds "a daemon and a doctor with a limit" h1 wg1 cpu-limited
    tells "the daemon may use 1.00 of $(nproc) processors"
    echo $$ >"$groups/cgroup.procs"
  fi
  echo "${PID[wg1]}" >"$groups/cgroup.procs"
  MACHINE="$MACHINE|^cpu-limited\$" healthy "a daemon whose own limit is gone" h1 wg1
else
  note "no control group can be limited here"
fi
if [[ -n $group ]]; then
  trap - EXIT
  remove_group
fi

say "NAT and clocks"
again
pings h1 10.9.0.2
healthy "a new session behind NAT" h1 wg1
stop_daemon wg1
late 400
on_clock
configured
pings h1 10.9.0.2
# Six minutes later: the last handshake is old.
finds "a peer that a NAT has forgotten" h1 wg1 nat-without-keepalive
on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 120
finds "keepalives that are too rare" h1 wg1 keepalive-too-long
on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 25
healthy "keepalives" h1 wg1

say "a clock that was set back"
on h1 wg showconf wg1 >"$WORK/wg1.conf"
stop_daemon wg1
late 864000
on_clock
on h1 wg setconf wg1 "$WORK/wg1.conf"
wg_address h1 wg1 10.9.0.1/24 fd09::1/64
wait_for 5 "wg1 to open its port" listens_udp h1 50001
no_ping h1 10.9.0.2
finds "the other end of a clock that was set back" h2 wg2 handshake-replayed
# A file that is new by the right clock.
cp "$LINERATE" "$WORK/linerate"
printf '#!/bin/sh\nexec %s %s "$@"\n' "${by_late_clock[*]}" "$WORK/linerate" >"$WORK/late-linerate"
chmod +x "$WORK/late-linerate"
LINERATE=$WORK/late-linerate finds "the end of a clock that was set back" h1 wg1 clock-behind
