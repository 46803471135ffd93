#!/usr/bin/env bash
# timeout: 1200
# Random histories of a client with a kill switch and of a gateway among hostile neighbours: up, reload, down, dead daemons,
# advertisements, DHCP answers, lies of the name server, redirects, claims, other default routes; after each event all packets obey the laws.
#
#   HISTORIES=N (20; with SEED 1) from SEED=N (1) on; FULL=1 plays a thousand. Each history has 5 to 8 events, or STEPS=N, and
#   depends only on its seed: `SEED=17 STEPS=4` replays the first four events of history 17.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/neighbour.bash"

need nft python3 busybox
# A thousand histories in sequence take too long, so each processor runs a share of them in its own sandbox.
if [[ -n ${FULL:-} && -z ${SEED:-} ]]; then
  parts=$(nproc) pids=()
  for ((part = 0; part < parts; part++)); do
    IN_SANDBOX='' SCENARIO_LOGS=$SCENARIO_LOGS/$part SEED=$((1 + part * 1000 / parts)) HISTORIES=$((1000 / parts)) bash "$0" >"$WORK/part$part" 2>&1 &
    pids+=($!)
  done
  for ((part = 0; part < parts; part++)); do
    wait "${pids[part]}" || { cat "$WORK/part$part" && fail "$(cat "$SCENARIO_LOGS/$part/why")"; }
    note "$(cat "$SCENARIO_LOGS/$part/note")"
  done
  exit
fi
host h1 h2 g1 inet other lan c1 c2

# The client: h1 in a café, as `cafe` has it.
cable h1 e1 h2 e2
address h2 e2 192.168.1.1/24 fd01::1/64 fe80::1/64
address h2 lo 203.0.113.2/32 203.0.113.7/32 2001:db8:7::7/128
forwarding h2
on h1 sysctl -qw net.ipv6.conf.{default,e1}.accept_ra_rt_info_max_plen=128
far_end
dhcp_script
# h2 is every name server that a history names.
address h2 lo 8.8.8.8/32
echo 203.0.113.2 >"$WORK/names"
neighbour_goes_on h2 e2 h1 e1 names "file=$WORK/names"
wait_for 5 "the name server" listens_udp h2 53
own_file /etc/nsswitch.conf <<<"hosts: files dns"
printf '%s\n' "nameserver 192.168.1.1" "options timeout:1 attempts:1" >"$WORK/etc/resolv.conf"

# The gateway: c1, c2 - inet - e1 g1 e5 - other, and lan1 - lan.
cable g1 e1 inet i1
cable g1 e5 other o1
cable g1 lan1 lan lan2
address g1 e1 203.0.113.5/24 2001:db8:1::5/64
address inet i1 203.0.113.1/24 2001:db8:1::1/64
address other o1 198.18.5.1/24 2001:db8:5::1/64
address lan lan2 192.168.77.2/24 fd77::2/64
address inet lo 198.51.100.2/32 198.51.100.7/32 2001:db8:3::2/128 2001:db8:3::7/128
on g1 sysctl -qw net.ipv6.conf.{e1,e5,lan1}.accept_ra_rt_info_max_plen=128
forwarding inet
key g1 c1 c2
for client in "c1 wg3 2" "c2 wg4 3"; do
  read -r name iface number <<<"$client"
  cable "$name" k1 inet "to$name"
  address "$name" k1 "192.0.$number.2/24"
  address inet "to$name" "192.0.$number.1/24"
  ip -n g1 route add "192.0.$number.0/24" via 203.0.113.1
  ip -n "$name" route add 203.0.113.0/24 via "192.0.$number.1"
  daemon "$name" "$iface"
  on "$name" wg set "$iface" private-key "$WORK/$name.key"
  wg_address "$name" "$iface" "10.9.0.$number/32" "fd09::$number/128"
  ip -n "$name" route add default dev "$iface"
  ip -n "$name" -6 route add default dev "$iface"
done
for name in h2 g1 c1 c2; do public "$name" >"$WORK/$name.pub"; done

histories=${HISTORIES:-20}
[[ -z ${SEED:-} ]] || histories=${HISTORIES:-1}
WORK=$WORK PYTHONDONTWRITEBYTECODE=1 python3 "$(dirname "$0")/hostile-histories.py" "${SEED:-1}" "$histories" ${STEPS:+"$STEPS"} >"$WORK/histories" 2>&1 || {
  cat "$WORK/histories"
  fail "$(cat "$WORK/violation" 2>/dev/null || tail -n 1 "$WORK/histories")"
}
note "$(cat "$WORK/histories")"
