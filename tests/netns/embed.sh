#!/usr/bin/env bash
# timeout: 120
# A program in C with a tunnel inside: sockets protected before they are bound, another network, another descriptor,
# rest, hostile calls; and nothing is left of it when it is stopped.
source "$(dirname "$0")/lib.sh"
need cc

compile() { # OUTPUT LIBRARY...
  cc -std=gnu11 -Wall -Wextra -Werror -O1 -I "$REPO/crates/ffi/include" "$REPO/tests/embed/embed.c" -o "$@" -lpthread ||
    fail "cannot compile tests/embed/embed.c against $2"
}
[[ -e $PROGRAMS/liblinerate.so ]] || fail "no $PROGRAMS/liblinerate.so (cargo build -p linerate-ffi)"
compile "$WORK/embed" "$PROGRAMS/liblinerate.so" -Wl,-rpath,"$PROGRAMS"
compile "$WORK/embed-static" "$PROGRAMS/liblinerate.a" -ldl -lm
expect "the version of the static library" "$("$WORK/embed" </dev/null)" "$("$WORK/embed-static" </dev/null)"

two_hosts
far_end
cat >"$WORK/settings" <<END
private_key=$(hex <"$WORK/h1.key")
listen_port=50001
public_key=$(public h2 | hex)
endpoint=192.0.2.2:50002
allowed_ip=10.9.0.2/32
allowed_ip=fd09::2/128
END

coproc EMBED { exec ip netns exec h1 "$WORK/embed" 2>"$SCENARIO_LOGS/embed.log"; }
PID[embed]=$EMBED_PID
read -r version <&"${EMBED[0]}"
tell() { # COMMAND... : leaves the answer in $ANSWER
  echo "$*" >&"${EMBED[1]}"
  read -r -t 60 ANSWER <&"${EMBED[0]}" || fail "no answer to: $*"
}
told() { tell "$@" && expect "$1" "0 " "${ANSWER% } "; }
counts() { tell counts && [[ $ANSWER == *"$1"* ]]; } # WHAT=NUMBER
expect_counts() { # WHAT=NUMBER...
  local what
  tell counts
  for what; do [[ $ANSWER == *"$what"* ]] || fail "expected $what, saw $ANSWER"; done
  say "counts: $ANSWER"
}
threads() { ls "/proc/$EMBED_PID/task" | wc -l; }
descriptors() { ls "/proc/$EMBED_PID/fd" | wc -l; }
one_thread() { [[ $(threads) == 1 ]]; }
stats() { tell get 1 && sed -n "s/.*$1=\([0-9]*\).*/\1/p" <<<"$ANSWER"; }
before=$(descriptors)
expect "threads before" 1 "$(threads)"

say "version $version: sockets are protected before they are bound, and nothing unprotected leaves"
count h1 out unmarked udp sport 50001 meta mark != 7
told start wg1 "$WORK/settings"
wg_address h1 wg1 10.9.0.1/24 fd09::1/64
expect_counts protected=2 bound=0 deadlocks=1
pings h1 10.9.0.2
pings h2 fd09::1
expect "outer datagrams of sockets that were not protected" 0 "$(counted h1 unmarked)"
expect_at_least "bytes received" 1 "$(stats rx_bytes)"
tell get 1
[[ $ANSWER != *private_key* && $ANSWER == *"public_key=$(public h2 | hex)"* ]] || fail "statistics: $ANSWER"
tell get 0
[[ $ANSWER == *"private_key=$(hex <"$WORK/h1.key") listen_port=50001 "* && $ANSWER != *errno* ]] || fail "configuration: $ANSWER"
tell get 2
[[ $ANSWER == *handshakes_done=1* ]] || fail "counters: $ANSWER"
sockets=$(find "/proc/$EMBED_PID/fd" -lname 'socket:*' -printf '%l\n' | tr -dc '0-9\n' | sort)
expect "netlink sockets" "" "$(comm -12 <(echo "$sockets") <(on h1 awk '{ print $10 }' /proc/net/netlink | sort))"

say "another port: new sockets, protected as well"
echo listen_port=50011 >"$WORK/port"
told set "$WORK/port"
expect_counts protected=4 bound=0
pings h1 10.9.0.2
expect "the port" 192.0.2.1:50011 "$(endpoint h2 wg2)"

say "another network: the peer learns of it without traffic, and without a handshake"
address h1 e1 192.0.2.3/24
ip -n h1 addr del 192.0.2.1/24 dev e1
address h1 e1 192.0.2.3/24 2>/dev/null || true # it may have gone with the first
told network 1
moved() { [[ $(endpoint h2 wg2) == 192.0.2.3:50011 ]]; }
wait_for 5 "h2 to see the new address" moved
expect_counts handshakes=1

say "another descriptor: no handshake either"
told tun wg1b
ip -n h1 link del wg1 2>/dev/null || true # its last descriptor was closed
wg_address h1 wg1b 10.9.0.1/24 fd09::1/64
pings h1 10.9.0.2
pings h2 10.9.0.1
expect_counts handshakes=1 ended=0

say "hostile calls, several threads at once"
told hostile "$WORK/settings"
echo listen_port=0 >"$WORK/any"
told crowd "$WORK/any"
pings h1 10.9.0.2
expect_counts handshakes=1 ended=0

say "at rest nothing wakes; without a network not even a persistent keepalive"
sleep 23 # a keepalive after ten seconds, and another for what came meanwhile
at_rest=$(wakeups "$EMBED_PID")
sleep 8
expect "context switches of all threads in 8 seconds" 0 $(($(wakeups "$EMBED_PID") - at_rest))
printf '%s\n' "public_key=$(public h2 | hex)" persistent_keepalive_interval=1 >"$WORK/keepalive"
told set "$WORK/keepalive"
told network 2
is_quiet() { # for a second
  local before
  before=$(wakeups "$EMBED_PID")
  sleep 1
  (($(wakeups "$EMBED_PID") == before))
}
wait_for 10 "the threads to rest" is_quiet
at_rest=$(wakeups "$EMBED_PID")
sleep 4
expect "context switches in 4 seconds without a network" 0 $(($(wakeups "$EMBED_PID") - at_rest))
sent=$(stats tx_bytes)
told network 1
more() { (($(stats tx_bytes) > sent)); }
wait_for 5 "a keepalive" more

say "the interface goes: the program is told"
ip -n h1 link del wg1b
wait_for 5 "the event" counts ended=1
told stop
wait_for 5 "the last thread to be gone" one_thread # the kernel takes a moment longer than the join
expect "descriptors" "$before" "$(descriptors)"
tell stop
expect "a second stop" "-9 " "${ANSWER% } "

say "and once more"
told start wg1 "$WORK/settings"
wg_address h1 wg1 10.9.0.1/24 fd09::1/64
pings h1 10.9.0.2
told stop
wait_for 5 "the last thread to be gone" one_thread # the kernel takes a moment longer than the join
expect "descriptors" "$before" "$(descriptors)"
expect "outer datagrams of sockets that were not protected" 0 "$(counted h1 unmarked)"
