#!/usr/bin/env bash
# timeout: 120
# A tunnel's daemon has died, and another program's daemon has its name: no command changes the other tunnel without saying so.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need wireguard-go

hosts_with_files
on_top() { # PROGRAM : starts another program's daemon, with an interface that is up
  at h1 "$1" wg1 >/dev/null 2>&1
  wait_for 5 "$1 to answer" answers h1 wg1
  ip -n h1 address add 10.20.0.1/24 dev wg1
  ip -n h1 link set wg1 up
  wait_for 5 "its port" eval '[[ $(at h1 wg show wg1 listen-port) != 0 ]]'
}
theirs() { # prints the other tunnel's state
  stat -c %i /run/wireguard/wg1.sock
  ip -n h1 -4 -o address show dev wg1 # without IPv6: the state of the link-local address changes
  ip -n h1 route show dev wg1
  at h1 wg showconf wg1
}
untouched() { diff "$WORK/theirs" <(theirs) || fail "$1: the other daemon's tunnel has changed"; } # WHEN
other="run by another program than the daemon that \`linerate up\` started"
for program in "$TUNNEL_DAEMON" wireguard-go; do
  for who in linerate wg-quick; do
    say "$who, then ${program##*/}"
    tunnel_file wg1 0.0.0.0/0,::/0
    remember
    good $who up wg1
    kill_daemon
    on_top "$program"
    theirs >"$WORK/theirs"
    for verb in up plan reload save; do
      ledger=$(md5sum </run/linerate/wg1.json)
      bad linerate $verb wg1
      said "$verb" "wg1 is ($other|not the interface that .up. made)"
      expect "$verb: the ledger" "$ledger" "$(md5sum </run/linerate/wg1.json)"
      untouched $verb
    done
    bad linerate status wg1 --check
    said "status" "$other"
    bad $who down wg1
    said "down" "wg1 is $other; it was left running. The remains of the tunnel of .*wg1.conf were removed"
    untouched down
    [[ ! -e /run/linerate/wg1.json ]] || fail "down has left the ledger"
    [[ $(ip -n h1 rule) != *suppress* ]] || fail "down has left rules"
    for key in none h2; do # with a key of its own, too, and a peer that the file has, too
      [[ $key == none ]] || at h1 wg set wg1 private-key "$WORK/$key.key" peer "$(public h1)"
      theirs >"$WORK/theirs"
      bad $who down wg1
      said "another down, private key: $key" "the tunnel wg1 that runs has another private key.*\`ip link delete dev wg1\`"
      untouched "another down"
    done
    ip -n h1 link delete wg1
    is_gone wg1
    as_before "$who down"
  done
done

say "\`up' was killed, and its daemon with it: what has the name since is another tunnel"
for program in "$TUNNEL_DAEMON" wireguard-go; do
  tunnel_file wg1 0.0.0.0/0,::/0 "SaveConfig = true"
  remember
  kill_up linerate
  on_top "$program"
  at h1 wg set wg1 private-key "$WORK/h2.key" peer "$(public h1)" allowed-ips 10.20.0.0/24
  theirs >"$WORK/theirs"
  cp /etc/wireguard/wg1.conf "$WORK/wg1.conf"
  for verb in up reload save; do
    bad linerate $verb wg1
    untouched $verb
  done
  bad linerate status wg1 --check
  said "status" "$other"
  bad linerate down wg1
  said "down" "wg1 is $other; it was left running. The remains of the tunnel of .*wg1.conf were removed"
  untouched down
  cmp /etc/wireguard/wg1.conf "$WORK/wg1.conf" || fail "the file has been saved"
  ip -n h1 link delete wg1
  is_gone wg1
  as_before "down"
done

say "one without a ledger, of the same file: whoever brought it up, \`down' takes it down"
tunnel_file wg1 0.0.0.0/0,::/0
remember
for program in "$TUNNEL_DAEMON" wireguard-go; do
  for key in reported loaded-by-a-hook; do
    on_top "$program"
    at h1 wg set wg1 private-key "$WORK/h1.key" peer "$(public h2)"
    [[ $key == reported ]] || sed -i "s|^PrivateKey.*|PostUp = wg set %i private-key $WORK/h1.key|" /etc/wireguard/wg1.conf
    good wg-quick down wg1
    is_gone wg1
    as_before "down"
    tunnel_file wg1 0.0.0.0/0,::/0
  done
done

say "an interface that no WireGuard runs, and what is left of a tunnel: \`down' removes the rest alone"
tunnel_file wg1 0.0.0.0/0,::/0 "FwMark = 0xca6c"
good linerate up wg1
kill_daemon
rm /run/linerate/wg1.json
ip -n h1 tuntap add wg1 mode tun
good linerate down wg1
ip -n h1 link show wg1 >/dev/null || fail "down has deleted an interface that does not belong to the tunnel"
[[ $(ip -n h1 rule) != *suppress* ]] || fail "down has left rules"
ip -n h1 link delete wg1
as_before "down"

say "one that does not answer: nothing tells whose it is"
on_top "$TUNNEL_DAEMON"
frozen=$(daemon_of wg1)
kill -STOP "$frozen"
bad linerate down wg1
said "down" "the tunnel wg1 that runs does not respond .*\`ip link delete dev wg1\`"
kill -CONT "$frozen"
wait_for 5 "wg1 to answer" answers h1 wg1
ip -n h1 link delete wg1
is_gone wg1

say "a service whose daemon is replaced ends, and leaves the other one alone"
nsenter --net=/run/netns/h1 "$LINERATE" up --supervise wg1 >>"$SCENARIO_LOGS/supervise.log" 2>&1 &
service=$!
wait_for 10 "wg1 to answer" answers h1 wg1
wait_for 5 "up to be done" ledger_complete wg1
kill -STOP $service # it would be faster
kill_daemon
on_top "$TUNNEL_DAEMON"
theirs >"$WORK/theirs"
kill -CONT $service
if wait $service; then fail "the service ended with 0"; fi
grep -q "wg1 is $other" "$SCENARIO_LOGS/supervise.log" || fail "its last words: $(tail -n 3 "$SCENARIO_LOGS/supervise.log")"
untouched "the service"
ip -n h1 link delete wg1
is_gone wg1
as_before "the service's end"

say "a ledger of an earlier version, which has no identity"
good linerate up wg1
python3 - <<'PY'
import json
path = "/run/linerate/wg1.json"
ledger = json.load(open(path))
del ledger["identity"]
json.dump(ledger, open(path, "w"))
PY
good linerate status wg1
good linerate reload wg1
pings h1 10.9.0.2
good linerate down wg1
is_gone wg1
as_before "down"
