#!/usr/bin/env bash
# timeout: 150
# A daemon frozen under load for longer than the other waits for an answer, then both: they carry on, and so does TCP.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.bash"
need iperf3

# What a suspend of the machine does to the keys is tested by the engine's
# a_suspend_wipes_the_keys_and_the_next_packet_makes_new_ones (crates/engine/tests/two_hosts.rs): here no clock stands still.
two_hosts
tunnel v4
before_fault
stream -b 20M
freeze() { # SECONDS IFACE...
  local begun iface seconds=$1
  shift
  for iface; do kill -STOP "${PID[$iface]}"; done
  sleep "$seconds"
  for iface; do kill -CONT "${PID[$iface]}"; done
  begun=$(now_ms)
  wait_for 5 "traffic after freezing $*" carries
  note "$* frozen for $seconds s: a ping after $(($(now_ms) - begun)) ms"
  flows # when TCP tries again
  note "the stream went on after $TOOK ms more"
}
freeze 16 wg2
freeze 3 wg1 wg2
end_stream
after_fault 5 "frozen"
for iface in wg1 wg2; do at_ease $iface 10 "$iface afterwards" sleep 1; done
