#!/usr/bin/env bash
# timeout: 120
# A tunnel is renamed, moved or replaced: what shows tunnels says where it is, and `wg show' lists and takes the name that its interface has, with every daemon.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need wireguard-go jq

hosts_with_files
host b
tool() { timeout 20 nsenter --net="/run/netns/$1" "$LINERATE" "${@:2}"; } # HOST WORD...
shows() { # WHERE : who shows tunnels says that of wg1, on h1
  local metrics
  said_of_it=$(tool h1 top --batch --updates 1)
  [[ $said_of_it =~ wg1:\ it\ .*$1 ]] || fail "top: expected '$1', saw: $said_of_it"
  expect "top --json" 1 "$(tool h1 top --json --updates 1 | jq -r '.tunnels[] | select(.interface == "wg1").place' | grep -cE "$1")"
  metrics=$(tool h1 metrics --dialect linerate)
  grep -qE "^linerate_tunnel_elsewhere_info\{interface=\"wg1\",place=\"[^\"]*$1.*\} 1$" <<<"$metrics" || fail "metrics: expected '$1', saw: $metrics"
  bad linerate doctor wg1 --no-probe
  said "doctor" "wg1 .*$1"
  bad linerate status wg1 --check
  said "status" "it .*$1"
}
shows_nothing() {
  ! tool h1 top --batch --updates 1 | grep -E ": it (runs|is|belongs)" || fail "top shows a place"
  ! tool h1 metrics --dialect linerate | grep ^linerate_tunnel_elsewhere || fail "metrics have a place"
}
interfaces() { # HOST EXPECTED
  expect "show interfaces on $1" "$2" "$(tool "$1" show interfaces | tr ' ' '\n' | sort | tr '\n' ' ' | sed 's/ $//')"
  expect "wg show interfaces on $1" "$2" "$(tool "$1" wg show interfaces | tr ' ' '\n' | sort | tr '\n' ' ' | sed 's/ $//')"
}
rename() { # OLD NEW
  ip -n h1 link set "$1" down
  ip -n h1 link set "$1" name "$2"
  ip -n h1 link set "$2" up
}

say "under its name"
tunnel_file wg1 10.9.0.0/24,fd09::/64 "ListenPort = 50001"
good linerate up wg1
shows_nothing
interfaces h1 "wg1 wg2"

say "renamed"
rename wg1 wg9
shows "its interface is called wg9"
[[ $(tool h1 doctor wg1 2>&1 || true) == *"\`ip link set dev wg9 name wg1\`"* ]] || fail "doctor does not say how to give the name back"
interfaces h1 "wg2 wg9"
expect "wg show wg9" 50001 "$(tool h1 wg show wg9 listen-port)"
expect "show wg9" 1 "$(tool h1 show wg9 | grep -c '^interface: wg9')"
expect "show all" 1 "$(tool h1 show all dump | grep -c "^wg9[[:space:]].*$(public h2)")"
tool h1 wg set wg9 peer "$(public h2)" persistent-keepalive 7
expect "wg showconf wg9" "PersistentKeepalive = 7" "$(tool h1 wg showconf wg9 | grep Keepalive)"
ip -n h1 link set wg9 down
ip -n h1 link set wg9 name wg1
good linerate reload wg1
shows_nothing

say "two that have exchanged their names"
tunnel_file wg5 10.9.1.0/24 "ListenPort = 50005"
sed -i 's/^Address.*/Address = 10.9.5.1\/24/' /etc/wireguard/wg5.conf
good linerate up wg5
rename wg1 wg0
rename wg5 wg1
rename wg0 wg5
interfaces h1 "wg1 wg2 wg5"
expect "wg show wg1" 50005 "$(tool h1 wg show wg1 listen-port)"
expect "wg show wg5" 50001 "$(tool h1 wg show wg5 listen-port)"
shows "its interface is called wg5"
for name in wg1 wg5; do good linerate down $name; done
is_gone wg1
is_gone wg5

say "moved"
good linerate up wg1
ip -n h1 link set wg1 netns b
shows "its interface was moved to another network namespace \(b\)"
interfaces h1 "wg1 wg2"
good linerate down wg1
is_gone wg1

say "replaced"
good linerate up wg1
kill_daemon
at h1 wireguard-go wg1 >/dev/null 2>&1
wait_for 5 "wireguard-go to answer" answers h1 wg1
shows "is run by another program than the daemon"
bad linerate down wg1
ip -n h1 link delete wg1
is_gone wg1

say "without a ledger, whatever the daemon"
for program in "$TUNNEL_DAEMON" wireguard-go; do
  # In the foreground: wireguard-go hands its socket over to another process, and the kernel names the first one.
  nsenter --net=/run/netns/h1 "$program" -f wg1 >/dev/null 2>&1 &
  wait_for 5 "$program to answer" answers h1 wg1
  at h1 wg set wg1 listen-port 50001 private-key "$WORK/h1.key"
  ip -n h1 address add 10.9.0.1/24 dev wg1
  ip -n h1 link set wg1 name wg9
  interfaces h1 "wg2 wg9"
  expect "wg show wg9" "$(public h1)" "$(tool h1 wg show wg9 public-key)"
  tool h1 status wg9 >"$WORK/said"
  said "status wg9" "^wg9: run by a daemon, 10.9.0.1/24"
  expect "tunnels in status" "wg2 wg9" "$(tool h1 status --json | jq -r '[.[].interface] | sort | join(" ")')"
  tunnel_file wg1 10.9.0.0/24
  bad linerate down wg1
  said "down wg1" "the interface of wg1 is called wg9; the tunnel is as it was: .*\`ip link set dev wg9 name wg1\`"
  ip -n h1 link set wg9 name wg1
  good linerate down wg1
  is_gone wg1
done
