#!/usr/bin/env bash
# Out of memory: a daemon that can have no more ends, with a word or by the kernel, and its supervisor starts it as it was.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need prlimit

hosts_with_files
tunnel_file wg1 10.9.0.2/32,fd09::2/128 "ListenPort = 50001"
LOG_LEVEL=info nsenter --net=/run/netns/h1 "$LINERATE" up --supervise wg1 >>"$SCENARIO_LOGS/supervise.log" 2>&1 &
wait_for 10 "wg1 to answer" answers h1 wg1
wait_for 5 "traffic" on h1 ping -n -q -c 1 -W 1 10.9.0.2
# Any 43 base64 digits whose last one ends in zero bits are a public key: 42 of them are 63/2 random bytes.
head -c $((60000 * 63 / 2)) /dev/urandom | base64 -w 42 |
  awk '{ printf "[Peer]\nPublicKey = %sA=\nAllowedIPs = 10.%d.%d.%d/32\n", $0, 100 + int(NR / 65536), int(NR / 256) % 256, NR % 256 }' >"$WORK/peers.conf"

another() { # DAEMON : another one runs, and answers
  [[ -n $(daemon_of wg1) && $(daemon_of wg1) != "$1" ]] && answers h1 wg1
}
starved() { # WHAT LIMIT... : after more was asked of the daemon than LIMIT lets it have
  local what=$1 daemon deaths
  shift
  daemon=$(daemon_of wg1)
  deaths=$(grep -c "the daemon has exited; restarting it" "$SCENARIO_LOGS/supervise.log" || true)
  on h1 wg showconf wg1 >"$WORK/wg1.conf"
  "$@" "$daemon"
  pings h1 10.9.0.2
  if on h1 wg addconf wg1 "$WORK/peers.conf" 2>"$WORK/said"; then fail "$what: 60,000 peers found room"; fi
  # wg says nothing when it was still writing: SIGPIPE ends it.
  [[ ! -s $WORK/said ]] || expect "$what: what wg says" "Unable to modify interface: Protocol error" "$(cat "$WORK/said")"
  wait_for 10 "another daemon after: $what" another "$daemon"
  wait_for 5 "traffic after: $what" on h1 ping -n -q -c 1 -W 1 10.9.0.2
  pings h1 10.9.0.2
  pings h2 10.9.0.1
  diff "$WORK/wg1.conf" <(on h1 wg showconf wg1) >"$WORK/difference" || fail "$what: the configuration is not as it was: $(tr '\n' ' ' <"$WORK/difference")"
  expect "$what: what the supervisor says" $((deaths + 1)) "$(grep -c "wg1: the daemon has exited; restarting it" "$SCENARIO_LOGS/supervise.log" || true)"
}

no_more_data() { # DAEMON : what it has, and 20 MB
  prlimit --pid "$1" --data=$(($(awk '/^VmData/ { print $2 }' "/proc/$1/status") * 1024 + (20 << 20)))
}
starved "a limit on data" no_more_data
note "the daemon's last word: $(grep -m 1 -i "memory" "$SCENARIO_LOGS/supervise.log")"

group=$(mktemp -d /sys/fs/cgroup/memory/linerate-XXXXXX 2>/dev/null) || { note "no memory cgroup here" && exit; }
trap 'rmdir "$group"' EXIT
small_group() { echo 16M >"$group/memory.limit_in_bytes" && echo "$1" >"$group/cgroup.procs"; } # DAEMON
starved "a memory cgroup" small_group
