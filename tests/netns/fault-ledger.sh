#!/usr/bin/env bash
# A ledger under /run/linerate that is cut off, empty or nonsense: each verb says so, and `down` goes by the tunnel's file.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
ip -n h1 route add default via 192.0.2.2
tunnel_file wg1 0.0.0.0/0,::/0 "ListenPort = 50001" "#! KillSwitch = true"
ledger=/run/linerate/wg1.json
remember
cut() { truncate -s -100 $ledger; }
empty() { truncate -s 0 $ledger; }
nonsense() { head -c 1000 /dev/urandom >"$WORK/nonsense" && mv "$WORK/nonsense" $ledger; }
of_another_version() { sed -i 's/"version": [0-9]*,/"version": 99,/' $ledger; }
unreadable="cannot read ledger $ledger: .* If you remove it"

for damage in cut empty nonsense of_another_version; do
  good linerate up wg1
  $damage
  for verb in up reload save; do
    bad linerate $verb wg1
    said "$verb, the ledger $damage" "$unreadable"
  done
  pings h1 10.9.0.2
  good linerate status wg1
  said "status, the ledger $damage" "1 of 1 peers connected"
  pings h2 10.9.0.1
  good linerate down wg1
  said "down, the ledger $damage" "$unreadable"
  is_gone wg1
  as_before "down, the ledger $damage"
done

say "without a tunnel: up does not guess what was done, and comes up when the ledger is removed"
mkdir -p /run/linerate
nonsense
bad linerate up wg1
said "up" "$unreadable"
rm $ledger
good linerate up wg1
pings h1 10.9.0.2
good linerate down wg1
is_gone wg1
as_before "down at the end"

say "under a service: it says so and ends, and the tunnel goes by its file"
tunnel_file wg1 10.9.0.2/32,fd09::2/128
nsenter --net=/run/netns/h1 "$LINERATE" up --supervise wg1 >>"$SCENARIO_LOGS/supervise.log" 2>&1 &
supervisor=$!
wait_for 10 "wg1 to answer" answers h1 wg1
wait_for 5 "up to be done" ledger_complete wg1
nonsense
if wait $supervisor; then fail "the service ended with 0"; fi
tail -n 1 "$SCENARIO_LOGS/supervise.log" | grep -q "$unreadable" || fail "its last word: $(tail -n 1 "$SCENARIO_LOGS/supervise.log")"
is_gone wg1
as_before "a service without a ledger"

say "the supervisor of a tunnel with a name is killed: the tunnel goes on, and a reload starts another"
own_file /etc/hosts <<<"192.0.2.2 h2.example.com"
ENDPOINT=h2.example.com:50002 tunnel_file wg1 10.9.0.2/32,fd09::2/128
good linerate up wg1
background() { pgrep "$@" -f "linerate supervise wg1\$"; }
wait_for 5 "its supervisor" background
kill -KILL "$(background -o)"
wait_for 5 "it to end" eval '! background' # it holds its lock until then
wait_for 5 "traffic" on h1 ping -n -q -c 1 -W 1 10.9.0.2
pings h1 10.9.0.2
supervises() { ! flock -n /run/linerate/wg1.supervisor true; } # once it is there, it is another moment until it works
is_alone() { [[ $(background -c) == 1 ]]; }                   # a child has the same command line until exec
for _ in 1 2; do
  good linerate reload wg1
  wait_for 5 "another supervisor" supervises
  wait_for 5 "it to be the only one" is_alone
done
say "one more that is started ends by a signal"
"$LINERATE" supervise wg1 &
sleep 0.2
kill -TERM $!
wait $! || true
wait_for 5 "only one supervisor" is_alone
kill -KILL "$(background -o)"
good linerate down wg1
is_gone wg1
as_before "down without a supervisor"
