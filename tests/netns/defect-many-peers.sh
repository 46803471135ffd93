#!/usr/bin/env bash
# heavy: thousands of peers
# timeout: 150
# D12: thousands of peers with a route each come up in one conversation with the kernel. Figures are medians, not judged.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
# Any 43 base64 digits whose last one ends in zero bits are a public key: 42 of them are 63/2 random bytes.
peers_file() { # COUNT
  tunnel_file wg1 10.9.0.2/32
  head -c $(($1 * 63 / 2)) /dev/urandom | base64 -w 42 | awk -v n="$1" \
    'NR < n { printf "[Peer]\nPublicKey = %sA=\nAllowedIPs = 10.%d.%d.%d/32\n", $0, 100 + int(NR / 65536), int(NR / 256) % 256, NR % 256 }' >>/etc/wireguard/wg1.conf
}
micros() { echo "${EPOCHREALTIME/./}"; }
median() { sort -n | awk '{ a[NR] = $1 } END { printf "%.1f", a[int((NR + 1) / 2)] / 1000 }'; }
routes() { ip -n h1 route show dev wg1 proto boot | wc -l; }

measure() { # WHO RUNS PEERS : leaves the medians in $UP and $DOWN, milliseconds
  local run begun
  : >"$WORK/ups" && : >"$WORK/downs"
  for ((run = 0; run < $2; run++)); do
    begun=$(micros)
    turn "$1" up wg1
    echo $(($(micros) - begun)) >>"$WORK/ups"
    ((STATUS == 0)) || fail "$1 up wg1 with $(peers "$3"): ended with $STATUS: $(tail -n 3 "$WORK/said")"
    if ((run == 0)); then
      expect "$1: peers" "$3" "$(on h1 wg show wg1 peers | wc -l)"
      expect "$1: routes" $(($3 - 1)) "$(routes)" # that to h2 is the interface's own
    fi
    begun=$(micros)
    turn "$1" down wg1
    echo $(($(micros) - begun)) >>"$WORK/downs"
    ((STATUS == 0)) || fail "$1 down wg1 with $(peers "$3"): ended with $STATUS: $(tail -n 3 "$WORK/said")"
    is_gone wg1
  done
  UP=$(median <"$WORK/ups") DOWN=$(median <"$WORK/downs")
}
remember
peers() { (($1 == 1)) && echo "1 peer" || echo "$1 peers"; }
for count in 1 500 5000; do
  peers_file $count
  runs=$((count == 1 ? 9 : count == 500 ? 5 : 3))
  # One process per route: 5,000 would be half a minute.
  if has_original && ((count <= 500)); then
    measure original $((count == 1 ? 5 : 1)) $count
    note "$(peers $count), original: up $UP ms, down $DOWN ms"
  fi
  for who in wg-quick linerate; do
    measure $who $runs $count
    note "$(peers $count), $who: up $UP ms, down $DOWN ms"
    as_before "$who with $(peers $count)"
  done
done
