#!/usr/bin/env bash
# heavy: streams as fast as the machine
# timeout: 400
# One stream under `linerate run` beside one of a daemon of root: the same offloads; ROUNDS=9 measures how fast they are.
source "$(dirname "$0")/lib.sh"
need iperf3 ethtool
export LOG_LEVEL=error
source "$(dirname "$0")/run.bash"
rounds=${ROUNDS:-1}
# A peer of its own at the other end, so that both can be up at once and only one is at work. In a session of its own, as in
# the background: the kernel shares the processors among sessions first (sched_autogroup_enabled), and beside the load and
# both daemons in one session it would be another measurement.
key d
daemon h1 wg1 setsid "$TUNNEL_DAEMON" -f
on h1 wg set wg1 private-key "$WORK/d.key" peer "$(public h2)" allowed-ips 10.9.0.2/32 endpoint 192.0.2.2:50002
on h2 wg set wg2 peer "$(public d)" allowed-ips 10.9.0.3/32
wg_address h1 wg1 10.9.0.3/24
pings h1 10.9.0.2

offloads() { grep -E '^(tcp-segmentation-offload|tx-udp-segmentation|tx-checksumming|scatter-gather):'; }
expect "offloads of the kernel" "$(on h1 ethtool -k wg1 | offloads)" "$(run work -- ethtool -k work | offloads)"

stream() { # COMMAND... : runs iperf3 for it, in Gbit/s
  local server
  nsenter --net=/run/netns/h2 iperf3 -s -1 >/dev/null 2>&1 &
  server=$!
  wait_for 5 "iperf3 -s" listens h2 5201
  "$@" >"$WORK/figures" || fail "iperf3: $(tail -n 5 "$WORK/figures")"
  wait $server || true
  perl -MJSON::PP -e 'local $/; printf "%.3f\n", decode_json(<STDIN>)->{end}{sum_received}{bits_per_second} / 1e9' <"$WORK/figures"
}
client=(iperf3 -c 10.9.0.2 -J -t "${SECONDS_EACH:-1}")
tunnel() { stream run work -- "${client[@]}" "$@"; } # [OPTION]
daemon_of_root() { stream on h1 "${client[@]}" "$@"; } # [OPTION]
for ((round = 1; round <= rounds; round++)); do
  for options in "" -R; do
    if ((round % 2)); then
      a=$(tunnel $options) b=$(daemon_of_root $options)
    else
      b=$(daemon_of_root $options) a=$(tunnel $options)
    fi
    note "Gbit/s${options:+ to h1}: $a under run, $b through a daemon of root"
  done
done
