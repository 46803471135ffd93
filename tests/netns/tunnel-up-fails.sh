#!/usr/bin/env bash
# timeout: 60
# `up` is a transaction: whatever fails, and whenever it is ended, the host is as it was, at once or after `down`.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
ip -n h1 route add default via 192.0.2.2
echo "nameserver 192.0.2.54" >"$WORK/etc/resolv.conf"
# Everything that a tunnel can change, before what fails.
full=("ListenPort = 50001" "DNS = 192.0.2.53, example.com" "#! RouteConflict = replace" "#! KillSwitch = true")
everywhere=0.0.0.0/0,::/0,192.168.77.0/24
fails() { # WHO WHAT WORDS
  bad "$1" up wg1
  said "$1, $2" "$3"
  is_gone wg1
  as_before "$1, $2"
}

for who in wg-quick linerate; do
  remember
  say "$who: what is wrong with the file is said before anything is done"
  for line in "Address = 10.9.0.300/24" "MTU = many" "Table = nowhere" "ListenPort = nowhere" "FwMark = blue"; do
    tunnel_file wg1 $everywhere "${full[@]:1}" "PreUp = touch $WORK/was-run" "$line"
    fails $who "$line" "${line##* }"
    [[ $who == wg-quick ]] || said "$who, $line" "wg1\.conf:[0-9]+:[0-9]+: "
  done
  [[ ! -e $WORK/was-run ]] || fail "$who: a command of a file with a mistake was run"

  say "$who: steps that fail"
  tunnel_file wg1 $everywhere "${full[@]}" "Address = ff02::5/64"
  fails $who "an address that the kernel refuses" "ff02::5"
  tunnel_file wg1 $everywhere "${full[@]}" "PreUp = exit 3"
  fails $who "PreUp" "exit 3"
  tunnel_file wg1 $everywhere "${full[@]}" "PostUp = exit 3"
  fails $who "PostUp" "exit 3"
  tunnel_file wg1 $everywhere "${full[@]}" "PostUp = kill -9 \$\$"
  fails $who "a command that is killed" "signal 9|kill -9"
  tunnel_file wg1 $everywhere "${full[@]/replace/fail}"
  fails $who "a policy" "192.168.77.0/24 .*lan1"
  tunnel_file wg1 $everywhere "${full[@]}"
  WG_QUICK_USERSPACE_IMPLEMENTATION=no-such-daemon fails $who "no daemon" "no-such-daemon"
  WG_QUICK_USERSPACE_IMPLEMENTATION=/bin/false fails $who "a daemon that ends" "/bin/false"
  tunnel_file wg1 $everywhere "${full[@]}" "PreUp = ip link delete %i"
  fails $who "an interface that goes meanwhile" "wg1"

  touch /run/linerate-is-a-file
  rm -rf /run/linerate
  mv /run/linerate-is-a-file /run/linerate
  remember
  tunnel_file wg1 $everywhere "${full[@]}"
  fails $who "no place for the ledger" "/run/linerate"
  rm /run/linerate

  say "$who: an interface of that name"
  ip -n h1 link add wg1 type veth peer name other
  remember
  tunnel_file wg1 $everywhere "${full[@]}"
  bad $who up wg1
  said "$who" "already exists"
  as_before "$who, another interface of that name"
  ip -n h1 link delete wg1

  say "$who: a port that is taken"
  remember
  ip netns exec h1 nc -4 -u -l 50001 >/dev/null 2>&1 </dev/null &
  other=$!
  wait_for 5 "the port to be taken" listens_udp h1 50001
  fails $who "a port that is taken" "50001|in use|Unable to modify"
  kill $other
  wait $other 2>/dev/null || true

  say "$who: twice"
  remember
  good $who up wg1
  cp "$WORK/before" "$WORK/before-first"
  remember
  bad $who up wg1
  said "$who, twice" "already exists"
  as_before "$who, twice"
  pings h1 10.9.0.2
  good $who down wg1
  is_gone wg1
  mv "$WORK/before-first" "$WORK/before"
  as_before "$who down"
done

say "killed while a command runs, then down"
for when in PreUp PostUp; do
  for who in wg-quick linerate; do
    tunnel_file wg1 $everywhere "${full[@]}" "$when = touch $WORK/runs; sleep 1000"
    remember
    { started_turn $who up wg1 >"$WORK/said" 2>&1 || true; } &
    turn=$!
    wait_for 10 "$when to run" eval "[[ -e $WORK/runs ]]"
    pkill -KILL -f "^$LINERATE.* up wg1"
    wait_for 5 "the command of $when to end" pkill -x sleep # the shell may not have started it yet
    wait $turn
    rm "$WORK/runs"
    good $who down wg1
    is_gone wg1
    as_before "$who killed in $when, then down"
  done
done
