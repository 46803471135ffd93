#!/usr/bin/env bash
# timeout: 90
# The supervisor restores what others remove of a tunnel that is not full, and leaves a link that is set down as it is.
# wg-quick has one for names; without it `status` tells and `reload` restores.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
address h2 lo 203.0.113.7/32
own_file /etc/hosts <<<"192.0.2.2 peer.example"

# What is removed, as others do it.
route() { ip -n h1 route del 203.0.113.0/24 dev wg1; }
addresses() { ip -n h1 address flush dev wg1; }
mtu() { ip -n h1 link set wg1 mtu 1300; }

# Of the host; the order of routes does not matter. The link-local address is the kernel's, not the tunnel's.
sorted_state() {
  ip -n h1 -br addr show dev wg1 | sed 's| fe80::[^ ]*||; s| *$||'
  ip -n h1 -4 route show table all dev wg1 | sort
  ip -n h1 -6 route show table all dev wg1 | grep -v '^\(local \)\?fe80:' | sort
  ip -n h1 link show wg1 | grep -o 'mtu [0-9]*'
}
is_restored() { diff <(sorted_state) "$WORK/up" >"$WORK/difference"; }
is_supervised() { supervisor_of wg1 >/dev/null; }
is_unsupervised() { ! is_supervised; }
# A worker of the kernel gives IPv6 addresses their routes, some after `up`.
remember_tunnel() {
  wait_for 5 "the route of the IPv6 address" has_local_route h1 fd09::1
  sorted_state >"$WORK/up"
}
restores() { # WHO
  local what
  remember_tunnel
  for what in route addresses mtu; do
    $what
    wait_for 10 "$1: what was removed ($what) to be restored" is_restored
    pings h1 203.0.113.7 -c 1
    say "$1, $what: restored"
  done
}
down() { # WHO
  good "$1" down wg1
  is_gone wg1
  wait_for 15 "the supervisor to end" is_unsupervised # a moment after its tunnel
}

say "an endpoint that is a name"
ENDPOINT=peer.example:50002 tunnel_file wg1 10.9.0.2/32,203.0.113.0/24
for who in linerate wg-quick; do
  good $who up wg1
  wait_for 5 "the supervisor" is_supervised
  restores $who
  down $who
done

say "a gateway"
tunnel_file wg1 10.9.0.2/32,203.0.113.0/24 "#! Gateway = lan1"
good linerate up wg1
wait_for 5 "the supervisor" is_supervised
restores "a gateway"
down linerate

say "a service"
tunnel_file wg1 10.9.0.2/32,203.0.113.0/24
nsenter --net=/run/netns/h1 "$LINERATE" up --supervise wg1 >>"$SCENARIO_LOGS/supervise.log" 2>&1 &
service=$!
wait_for 10 "the tunnel to be up" ledger_complete wg1
restores "a service"
kill -TERM "$service"
wait "$service" || fail "the service ended with $?"
is_gone wg1

say "an endpoint that is an address"
good linerate up wg1
wait_for 5 "the supervisor" is_supervised
restores "an address"
down linerate

say "a supervisor at rest does not wake up"
good linerate up wg1
wait_for 5 "the supervisor" is_supervised
supervisor=$(supervisor_of wg1)
is_quiet() {
  local before
  before=$(wakeups "$supervisor")
  sleep 0.5
  [[ $(wakeups "$supervisor") == "$before" ]]
}
wait_for 10 "the supervisor to be at rest" is_quiet
before=$(wakeups "$supervisor")
sleep 3
expect "times that it woke up within 3 s" 0 $(($(wakeups "$supervisor") - before))
down linerate

say "wg-quick leaves no supervisor behind"
good wg-quick up wg1
remember_tunnel
! is_supervised || fail "there is a supervisor"
route
bad linerate status wg1 --check
said "status" "another program removed .*203\.0\.113\.0/24.*\`linerate reload wg1\` restores that"
good linerate reload wg1
is_restored || fail "reload has not restored this: $(tr '\n' ' ' <"$WORK/difference")"
down wg-quick

say "an administrator sets the link down: it stays so, and is whole when it is up again"
stays_down() { # WHO
  good "$1" up wg1
  wait_for 5 "the supervisor" is_supervised
  remember_tunnel
  ip -n h1 link set wg1 down
  sleep 1.5 # longer than the supervisor waits for other changes
  [[ $(ip -n h1 link show wg1) != *,UP* ]] || fail "$1: the supervisor has set the link up"
  bad linerate status wg1 --check
  said "$1: status" "the interface is down"
  ip -n h1 link set wg1 up
  wait_for 10 "$1: the tunnel to be whole" is_restored
  pings h1 203.0.113.7 -c 1
  down "$1"
}
stays_down linerate
ENDPOINT=peer.example:50002 tunnel_file wg1 10.9.0.2/32,203.0.113.0/24
stays_down linerate
stays_down wg-quick
ENDPOINT=peer.example:50002 tunnel_file wg1 0.0.0.0/0
stays_down wg-quick
