#!/usr/bin/env bash
# timeout: 150
# An end that is killed or ended under load: configured again, by a supervisor or by hand, it carries on within 2 s.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/faults.bash"
need iperf3

# h1's end is a service, h2's was set up by hand. Both keep the other informed, so that the one that lost its sessions begins.
hosts_with_files
on h2 wg set wg2 peer "$(public h1)" endpoint 192.0.2.1:50001 persistent-keepalive 1
tunnel_file wg1 10.9.0.2/32,fd09::2/128 "ListenPort = 50001"
echo "PersistentKeepalive = 1" >>/etc/wireguard/wg1.conf
nsenter --net=/run/netns/h1 "$LINERATE" up --supervise wg1 >>"$SCENARIO_LOGS/supervise.log" 2>&1 &
wait_for 10 "wg1 to answer" answers h1 wg1
wait_for 5 "traffic" carries
before_fault
on h2 wg showconf wg2 >"$WORK/wg2.conf"

supervised() { # another daemon than the killed one, which answers
  [[ -n $(daemon_of wg1) && $(daemon_of wg1) != "$killed" ]] && answers h1 wg1
}
end_wg1() { # COMMAND...
  killed=$(daemon_of wg1)
  "$@"
  wait_for 10 "the supervisor to start another daemon" supervised
}
no_wg2() { ! ip -n h2 link show wg2 >/dev/null 2>&1; }
end_wg2() {
  kill -KILL "${PID[wg2]}"
  wait_for 5 "the interface of the killed daemon to go" no_wg2
  # This removes the dead socket. Later it could remove the new one: wg removes a socket that did not answer a moment before.
  expect_failure "wg show of a killed daemon" on h2 wg show wg2
  daemon h2 wg2
  on h2 wg setconf wg2 "$WORK/wg2.conf"
  wg_address h2 wg2 10.9.0.2/24 fd09::2/64
}
stream
carries_on() { # WHAT
  local begun
  begun=$(now_ms)
  wait_for 5 "traffic after the restart: $1" carries # 2 s are promised; the rest is for busy machines
  note "$1: a ping $(($(now_ms) - begun)) ms after the restart"
  flows # when TCP tries again
  say "the stream went on after $TOOK ms more"
}
for _ in 1 2; do
  end_wg2
  carries_on "wg2 killed"
  end_wg1 pkill -KILL -f "linerated wg1\$"
  carries_on "wg1 killed"
done
end_wg1 ip -n h1 link delete wg1
carries_on "the interface wg1 deleted"
end_wg1 rm /run/wireguard/wg1.sock
carries_on "the socket of wg1 deleted"
end_stream
after_fault 1 "all of that"
