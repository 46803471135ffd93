#!/usr/bin/env bash
# A new session beside one that is still up loses nothing: the answer to its first packet goes back in it.
# The other end has forgotten the old session, so an answer in that one would be lost.
source "$(dirname "$0")/lib.sh"

two_hosts
tunnel v4
pings h1 10.9.0.2
for round in {1..20}; do
  sleep 0.1 # initiations of one peer within 20 ms are dropped as a flood
  forget h1 wg1
  on h1 ping -n -q -c 1 -W 1 10.9.0.2 >/dev/null || fail "round $round: the first packet of a new session had no answer"
done
say "20 new sessions, begun by h1: every first packet was answered"
for round in {1..20}; do
  stop_daemon wg2
  daemon h2 wg2
  on h2 wg set wg2 listen-port 50002 private-key "$WORK/h2.key" peer "$(public h1)" allowed-ips 10.9.0.1/32 endpoint 192.0.2.1:50001
  wg_address h2 wg2 10.9.0.2/24
  on h2 ping -n -q -c 1 -W 1 10.9.0.1 >/dev/null || fail "round $round: the first packet of a restarted daemon had no answer"
done
say "20 restarts of the daemon on h2: every first packet was answered"
