#!/usr/bin/env bash
# timeout: 120
# Two network namespaces share /run: a tunnel belongs to the namespace in which it was brought up. From the other one, no command changes it, removes its ledger or reports success.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
host b
in_b() { # WHO VERB NAME : as `bad`, in b
  local who=() status=0
  [[ $1 == linerate ]] || who=("$1")
  at b timeout "$TURN_LIMIT" "$LINERATE" "${who[@]}" "${@:2}" >"$WORK/said" 2>&1 || status=$?
  { echo "--- in b, $*: $status" && cat "$WORK/said"; } >>"$SCENARIO_LOGS/said.log"
  ((status != 0)) || fail "in b, $*: expected a failure, it succeeded: $(tail -n 5 "$WORK/said" | tr '\n' ' ')"
}
# The kernel adds a link's link-local address at any time.
settled() { state | sed -e 's| fe80::[^ ]*||' -e 's| *$||' -e '/^\(local \|multicast \|anycast \)\?\(fe80\|ff00\):/d'; }
# Prints all state of h1 and b that must not change, with the running processes.
all() {
  settled
  ip -n b -br link
  ip -n b rule show
  ip -n b route show table all
  on b nft list ruleset
  md5sum /run/linerate/*.json /run/linerate/*.conf /etc/wireguard/*
  stat -c '%n %i' /run/wireguard/*
  daemon_of wg1
}
refused() { # WHO VERB WORDS
  all >"$WORK/all"
  in_b "$1" "$2" wg1
  said "in b, $1 $2" "$3"
  diff "$WORK/all" <(all) >"$WORK/difference" || fail "in b, $1 $2: something has changed: $(tr '\n' ' ' <"$WORK/difference")"
}

for who in linerate wg-quick; do
  say "$who"
  tunnel_file wg1 0.0.0.0/0,::/0 "#! KillSwitch = true"
  remember
  good $who up wg1
  [[ $who != linerate ]] || wait_for 5 "its supervisor" supervisor_of wg1
  for verb in up down save; do refused $who $verb "wg1 belongs to another network namespace \(h1\).*\`ip netns exec h1 linerate"; done
  refused linerate plan "wg1 belongs to another network namespace \(h1\)"
  refused linerate reload "\`ip netns exec h1 linerate reload wg1\`"
  at b "$LINERATE" status wg1 >"$WORK/said"
  said "status in b" "it belongs to another network namespace \(h1\)"

  say "$who: the other namespace has a file and an interface of that name"
  tunnel_file wg1 10.9.0.2/32 "ListenPort = 50077"
  refused $who up "belongs to another network namespace"
  ip -n b link add wg1 type veth peer name other
  refused $who down "belongs to another network namespace"
  ip -n b link delete wg1
  tunnel_file wg1 0.0.0.0/0,::/0 "#! KillSwitch = true"

  pings h1 10.9.0.2
  good linerate reload wg1
  good linerate status wg1 --check
  ! grep -q "another network" "$WORK/said" || fail "status in h1: $(cat "$WORK/said")"

  say "$who: the daemon has died, and its kill switch holds"
  kill_daemon
  in_b $who up wg1
  said "in b, up" "belongs to another network namespace"
  [[ $(on h1 nft list ruleset) == *wg1* ]] || fail "the kill switch is gone"
  good $who down wg1
  as_before "$who down"
done

say "a daemon without a ledger, of another namespace"
daemon h1 wg1
in_b linerate up wg1
said "in b, up" "a daemon answers for wg1 .* not in this network namespace \(h1\)"
in_b linerate down wg1
said "in b, down" "the interface of wg1 is in another network namespace \(h1\)"
ip -n b link add wg1 type veth peer name other
in_b linerate down wg1
ip -n b link show wg1 >/dev/null || fail "down in b has deleted what is no tunnel"
ip -n b link delete wg1
alive wg1 || fail "the daemon in h1 has ended"
stop_daemon wg1

say "a namespace that is gone, as after a restart of a container: up starts anew, and does not change similar state of other tunnels"
tunnel_file wg1 0.0.0.0/0,::/0
tunnel_file wg3 0.0.0.0/0 "FwMark = 0x2e2c" "Table = auto"
host c
at c "$LINERATE" up wg1 >"$WORK/said" 2>&1 || fail "in c, up: $(cat "$WORK/said")"
wait_for 5 "its supervisor" supervisor_of wg1
pkill -KILL -f "linerate supervise (-- )?wg1\$"
pkill -KILL -f "linerated wg1\$"
wait_for 5 "the daemon to end" no_daemon wg1
ip netns delete c
good linerate up wg3
ip -n h1 rule >"$WORK/rules"
good linerate down wg1
diff "$WORK/rules" <(ip -n h1 rule) || fail "down has removed rules of another tunnel"
pings h1 10.9.0.2
good linerate down wg3
is_gone wg3
good linerate up wg1
pings h1 10.9.0.2
good linerate down wg1
is_gone wg1
