#!/usr/bin/env bash
# timeout: 240
# Sessions with every daemon are replaced after two minutes, whichever end initiated them, without losing a packet.
source "$(dirname "$0")/lib.sh"

two_hosts
names=() missing=()
pair() { # NAME PROGRAM [ARGUMENT...] : two tunnels with this peer; in the first we speak first, in the second they
  local name=$1 n first ours theirs
  shift
  type -P "$1" >/dev/null || { missing+=("$name") && return; }
  names+=("$name")
  for first in ours theirs; do
    n=$((${#PID[@]} / 2 + 1)) ours=us$((${#PID[@]} / 2 + 1)) theirs=it$((${#PID[@]} / 2 + 1))
    key "$ours" "$theirs"
    daemon h1 "$ours"
    daemon h2 "$theirs" "$@"
    on h1 wg set "$ours" listen-port $((51000 + n)) private-key "$WORK/$ours.key" peer "$(public "$theirs")" allowed-ips 10.9.$n.2/32 \
      endpoint 192.0.2.2:$((52000 + n))
    on h2 wg set "$theirs" listen-port $((52000 + n)) private-key "$WORK/$theirs.key" peer "$(public "$ours")" allowed-ips 10.9.$n.1/32 \
      endpoint 192.0.2.1:$((51000 + n))
    wg_address h1 "$ours" 10.9.$n.1/24
    wg_address h2 "$theirs" 10.9.$n.2/24
    # On a busy machine an initiation may be lost, and is repeated after 5 s.
    if [[ $first == ours ]]; then
      wait_for 30 "an answer of $theirs" on h1 ping -n -c 1 -W 6 10.9.$n.2
    else
      wait_for 30 "an answer to $theirs" on h2 ping -n -c 1 -W 6 10.9.$n.1
    fi
    tunnels+=("$name/$first/$n")
  done
}
tunnels=()
pair wireguard-go-debian wireguard-go -f
pair wireguard-go-upstream "$PEERS/wireguard" -f
pair gotatun "$PEERS/gotatun" -f --disable-drop-privileges
pair boringtun "$PEERS/boringtun-cli" -f --disable-drop-privileges
((${#names[@]})) || skip "none of the other daemons is here (tests/interop/prepare)"
note "with ${names[*]}${missing[*]:+; not here: ${missing[*]}}"

declare -A before=() steady=()
for tunnel in "${tunnels[@]}"; do
  n=${tunnel##*/}
  before[$n]=$(handshake_time h1 us"$n")
  ip netns exec h1 ping -n -q -i 0.5 -c 265 -W 3 10.9."$n".2 >"$WORK/steady$n" 2>&1 &
  steady[$n]=$!
done
for tunnel in "${tunnels[@]}"; do
  n=${tunnel##*/}
  wait "${steady[$n]}" || true
  grep -q ' 0% packet loss' "$WORK/steady$n" || fail "$tunnel: expected 0% packet loss, saw $(grep loss "$WORK/steady$n")"
  expect_at_least "$tunnel: seconds between the two handshakes" 118 $(($(handshake_time h1 us"$n") - before[$n]))
done
