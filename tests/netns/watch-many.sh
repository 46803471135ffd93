#!/usr/bin/env bash
# heavy: 10,000 peers
# timeout: 240
# What `linerate top` costs with 10,000 peers, it and the daemon together: at rest, with 1 % of them active, with very many.
source "$(dirname "$0")/lib.sh"
need tmux

PEERS=10000
SECONDS_EACH=${SECONDS_EACH:-20}
two_hosts
key h1
daemon h1 wg1
on h1 wg set wg1 listen-port 50001 private-key "$WORK/h1.key"
wg_address h1 wg1 10.9.0.1/16
# Whoever has an endpoint and no session is sent an initiation every five seconds, which is activity: of those, two fifths
# in the two seconds that an answer covers.
block h2 in udp dport 9
head -c $((PEERS * 63 / 2)) /dev/urandom | base64 -w 42 |
  awk '{ printf "[Peer]\nPublicKey = %sA=\nAllowedIPs = 10.%d.%d.%d/32\n", $0, 100 + int(NR / 65536), int(NR / 256) % 256, NR % 256 }' >"$WORK/peers.conf"
on h1 wg addconf wg1 "$WORK/peers.conf"
mapfile -t keys < <(on h1 wg show wg1 peers)

ticks() { cpu_ticks "$1"; }
active() { # COUNT : that many peers are tried
  printf '[Peer]\nPublicKey = %s\nEndpoint = 192.0.2.2:9\nPersistentKeepalive = 1\n' "${keys[@]:0:$1}" >"$WORK/active.conf"
  (($1 == 0)) || on h1 wg addconf wg1 "$WORK/active.conf"
}
share() { awk "BEGIN { printf \"%.2f\", $1 / $SECONDS_EACH }"; } # TICKS : in percent of a core
measure() { # WHAT
  local daemon=${PID[wg1]} top before_daemon before_top alone
  sleep 3
  before_daemon=$(ticks "$daemon")
  sleep "$SECONDS_EACH"
  alone=$(($(ticks "$daemon") - before_daemon))
  tmux -f /dev/null -S "$WORK/tmux" new-session -d -x 80 -y 24 "ip netns exec h1 env TERM=xterm-256color $LINERATE top wg1"
  wait_for 30 "top to run" pgrep -f "^$LINERATE top"
  top=$(pgrep -f "^$LINERATE top")
  sleep 2
  before_daemon=$(ticks "$daemon") before_top=$(ticks "$top")
  sleep "$SECONDS_EACH"
  watched=$(($(ticks "$daemon") - before_daemon)) looking=$(($(ticks "$top") - before_top))
  tmux -S "$WORK/tmux" capture-pane -p | head -n 6
  note "$1: daemon $(share $alone) % alone, $(share $watched) % watched; top $(share $looking) %"
  expect_at_most "what top costs in all, in percent of a core" 50 "$(share $((watched - alone + looking)))"
  kill "$top"
  wait_for 30 "top to end" eval "[[ ! -d /proc/$top ]]"
}

measure "at rest"
active 250
measure "250 peers tried, 100 of them active in each answer"
active $PEERS
measure "all peers tried, 4,000 of them active in each answer"
