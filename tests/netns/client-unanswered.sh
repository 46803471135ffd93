#!/usr/bin/env bash
# timeout: 180
# `linerate client` that is killed before the daemon has the edit, that a frozen daemon does not answer, or while the daemon is dead.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

two_hosts
server=/etc/wireguard/wg1.conf
key h1 ann bob carol dave erin
(umask 077 && cat >$server) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.71.8.1/24
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
CONF
client() { # WORD...
  at h1 timeout 60 "$LINERATE" client "$@" >"$WORK/out" 2>"$WORK/said" || fail "client $*: $(cat "$WORK/said")"
  say "client $*: ok"
}
runs_with() { # NAME... : the running tunnel has these peers
  [[ $(at h1 wg show wg1 peers | sort) == "$(for name; do public "$name"; done | sort)" ]]
}

good linerate up wg1
for name in ann bob carol dave; do client add $name --pubkey "$(public $name)"; done
runs_with ann bob carol dave || fail "peers: $(at h1 wg show wg1 peers)"

say "killed between the file and the daemon"
daemon=$(daemon_of wg1)
kill -STOP "$daemon"
nsenter --net=/run/netns/h1 "$LINERATE" client disable bob >"$WORK/out" 2>&1 &
pid=$!
wait_for 5 "the new file" grep -qF "#~ PublicKey = $(public bob)" $server
kill -KILL $pid
wait $pid 2>/dev/null || true
kill -CONT "$daemon"
runs_with ann bob carol dave || fail "the kill came too late: $(at h1 wg show wg1 peers)"
client disable bob
runs_with ann carol dave || fail "bob stays: $(at h1 wg show wg1 peers)"

say "no answer"
kill -STOP "$daemon"
if at h1 timeout 60 "$LINERATE" client disable carol >"$WORK/out" 2>"$WORK/said"; then fail "client disable carol: success, without an answer"; fi
kill -CONT "$daemon"
said "a warning" "does not respond.*linerate reload wg1"
# It may or may not have taken what it was asked in vain.
[[ -e /run/linerate/wg1.next ]] || fail "the edit counts as applied"
good linerate reload wg1
runs_with ann dave || fail "carol stays: $(at h1 wg show wg1 peers)"
[[ ! -e /run/linerate/wg1.next ]] || fail "the edit does not count as applied"
good linerate down wg1
is_gone wg1

say "while the daemon is dead, under a supervisor that still has to notice"
at h1 "$LINERATE" up --supervise wg1 >"$SCENARIO_LOGS/supervise.log" 2>&1 &
service=$!
wait_for 20 "wg1" eval "ledger_complete wg1 && runs_with ann dave"
supervisor=$(pgrep -o -f "up --supervise wg1\$")
sleep 1 # until it has read the state
daemon=$(daemon_of wg1)
kill -STOP "$supervisor"
kill -KILL "$daemon"
wait_for 5 "the end of the daemon" no_link wg1
client disable dave
said "a warning" "does not respond"
client add erin --pubkey "$(public erin)"
kill -CONT "$supervisor"
wait_for 25 "ann and erin alone to be let in" runs_with ann erin
good linerate reload wg1
said "reload" "nothing has changed"
kill -TERM "$supervisor"
wait "$service" || fail "the service ended with $?"
is_gone wg1
