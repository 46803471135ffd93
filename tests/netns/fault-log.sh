#!/usr/bin/env bash
# A log that cannot be written, on a full disk, closed, without a reader or with one that has stopped: the tunnel carries on.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.bash"

two_hosts
key h1 h2
mkfifo "$WORK/unread"
sleep 1000 <>"$WORK/unread" &
without_log() { # WHAT REDIRECTION : of standard error
  local status=0
  daemon h1 wg1 bash -c "exec \"\$0\" -f \"\$1\" 2>$2" "$TUNNEL_DAEMON"
  daemon h2 wg2
  wire v4
  before_fault
  # Lines enough for any pipe: a firewall refuses what is sent, and at this level each is logged.
  on h1 nft 'add table inet bar; add chain inet bar out { type filter hook output priority 0; }; add rule inet bar out udp dport 50002 drop'
  on h1 ping -n -q -i 0.002 -c 100 -W 0.1 10.9.0.2 >/dev/null || true
  on h1 nft delete table inet bar
  after_fault 5 "$1"
  at_ease wg1 10 "$1" sleep 0.5
  stop_daemon wg2
  stop_daemon wg1
  wait "${PID[wg1]}" || status=$?
  expect "$1: status" 0 $status
}
without_log "a full disk" /dev/full
without_log "a closed log" "&-"
without_log "a log whose reader is gone" " >(true)"
head -c 61440 /dev/zero >"$WORK/unread" # of 65,536 that it holds
without_log "a log that nobody reads any more" "$WORK/unread"
