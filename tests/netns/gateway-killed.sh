#!/usr/bin/env bash
# timeout: 180
# A gateway's `up`, `reload` and daemon that are killed leave what `down` takes back; two gateways share a sysctl.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"

need nft
gateway_hosts
gateway_file "#! Gateway = auto" "#! Masquerade = both"
remember_all
begun=${EPOCHREALTIME/./}
good linerate up wg1
length=$((${EPOCHREALTIME/./} - begun))
good linerate down wg1
is_gone wg1
for ((part = 0; part <= 12; part++)); do
  STATUS=0
  at h1 timeout -s KILL "$(awk "BEGIN { printf \"%.4f\", $length * ($part + 1) / 10 / 1000000 }")" "$LINERATE" up wg1 >"$WORK/said" 2>&1 || STATUS=$?
  turn linerate down wg1
  ((STATUS == 0)) || said "down after $part parts of 10" "is not a WireGuard interface"
  is_gone wg1
  all_as_before "up killed after $part parts of 10, then down"
done

good linerate up wg1
begun=${EPOCHREALTIME/./}
gateway_file "#! Gateway = up0, lan1" "#! ClientIsolation = true"
good linerate reload wg1
length=$((${EPOCHREALTIME/./} - begun))
for ((part = 0; part <= 8; part++)); do
  if ((part % 2)); then gateway_file "#! Gateway = up0, lan1" "#! ClientIsolation = true"; else gateway_file "#! Gateway = off"; fi
  at h1 timeout -s KILL "$(awk "BEGIN { printf \"%.4f\", $length * ($part + 1) / 8 / 1000000 }")" "$LINERATE" reload wg1 >"$WORK/said" 2>&1 || true
done
good linerate down wg1
is_gone wg1
all_as_before "reloads killed, then down"

say "the daemon"
gateway_file "#! Gateway = auto" "#! Masquerade = both"
good linerate up wg1
new_sessions
pings c1 198.18.0.1
kill_daemon
good linerate up wg1
new_sessions
pings c1 198.18.0.1
pings c1 2001:db8:18::1
kill_daemon
good linerate down wg1
is_gone wg1
all_as_before "daemon killed, then down"

say "a daemon that is started again"
nsenter --net=/run/netns/h1 "$LINERATE" up --supervise wg1 >"$SCENARIO_LOGS/supervise.log" 2>&1 &
supervisor=$!
wait_for 10 "the tunnel to be up" ledger_complete wg1
first=$(daemon_of wg1)
kill -KILL "$first"
started_again() { local now && now=$(daemon_of wg1) && [[ $now != "$first" ]] && on h1 wg show wg1 >/dev/null; }
wait_for 10 "another daemon" started_again
wait_for 5 "the gateway to forward again" eval '[[ $(sysctl_of net.ipv4.conf.wg1.forwarding) == 1 ]]'
new_sessions
pings c1 198.18.0.1
pings c1 2001:db8:18::1
kill $supervisor
wait $supervisor || fail "the supervisor ended with $?"
is_gone wg1
all_as_before "supervised"

say "two gateways to the same interface"
cat >/etc/wireguard/wg5.conf <<CONF
[Interface]
PrivateKey = $(cat "$WORK/c1.key")
Address = 10.8.0.1/24
#! Gateway = up0
CONF
chmod 600 /etc/wireguard/wg5.conf
good linerate up wg1
new_sessions
good linerate up wg5
good linerate down wg1
is_gone wg1
expect "forwarding of up0, which the other needs" 1 "$(sysctl_of net.ipv4.conf.up0.forwarding)"
good linerate up wg1
new_sessions
good linerate down wg5
is_gone wg5
pings c1 198.18.0.1
good linerate down wg1
is_gone wg1
all_as_before "both down"

say "both stopped at the same moment"
both_stop() { # WHEN
  local first
  good linerate up wg1
  good linerate up wg5
  started_turn linerate down wg1 >"$WORK/said-1" 2>&1 &
  first=$!
  started_turn linerate down wg5 >"$WORK/said-5" 2>&1 || fail "down wg5: $(cat "$WORK/said-5")"
  wait $first || fail "down wg1: $(cat "$WORK/said-1")"
  is_gone wg1
  is_gone wg5
  all_as_before "$1"
}
for ((number = 1; number <= 10; number++)); do both_stop "turn $number"; done
# Neither forgets its ledger before the other has set back what it could.
meet() { echo "PostDown = touch $WORK/met-$1; for ((n = 0; n < 500; n++)); do [[ -e $WORK/met-$2 ]] && break; sleep 0.01; done"; } # OWN OTHER
gateway_file "#! Gateway = auto" "#! Masquerade = both" "$(meet 1 5)"
sed -i "/^Address/a $(meet 5 1)" /etc/wireguard/wg5.conf
both_stop "side by side"
