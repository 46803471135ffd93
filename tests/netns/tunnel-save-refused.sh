#!/usr/bin/env bash
# `save`, and SaveConfig at `down`, leave a file alone that the running tunnel is not of: the daemon died and somebody has
# started another, nobody has given it what the file says, or the tunnel came up from another file.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
by_hand() { # as somebody does who only knows of the daemon
  at h1 "$TUNNEL_DAEMON" wg1
  wait_for 5 "the daemon that was started by hand" answers h1 wg1
}
unchanged() { # WHEN
  cmp "$WORK/original.conf" /etc/wireguard/wg1.conf || fail "$1: the file is another: $(tr '\n' ' ' </etc/wireguard/wg1.conf)"
  said "$1" "wg1.conf: not saved: $2"
}
tunnel_file wg1 10.9.0.2/32 "ListenPort = 50001"
cp /etc/wireguard/wg1.conf "$WORK/original.conf"
grep -v "^\(Address\|SaveConfig\)" "$WORK/original.conf" >"$WORK/set.conf"

for who in wg-quick linerate; do
  say "$who: another daemon than the one that up has started"
  remember
  good $who up wg1
  kill_daemon
  by_hand
  bad $who save wg1
  unchanged "$who, the new daemon" "wg1 is not the interface that .up. made"
  on h1 wg setconf wg1 "$WORK/set.conf"
  bad $who save wg1
  unchanged "$who, the new daemon, given keys and peers" "wg1 is not the interface that .up. made"
  good $who down wg1
  is_gone wg1
  as_before "$who: down of the new daemon"

  say "$who: SaveConfig"
  sed -i 's/^ListenPort.*/&\nSaveConfig = true/' /etc/wireguard/wg1.conf
  cp /etc/wireguard/wg1.conf "$WORK/original.conf"
  good $who up wg1
  kill_daemon
  by_hand
  bad $who down wg1
  said "$who, SaveConfig" "wg1 is run by another program"
  cmp /etc/wireguard/wg1.conf "$WORK/original.conf" || fail "$who: down has changed the file"
  ip -n h1 link delete wg1
  is_gone wg1
  good $who up wg1
  kill_daemon
  by_hand
  on h1 wg setconf wg1 "$WORK/set.conf"
  good $who down wg1
  unchanged "$who, SaveConfig, with the file's key" "wg1 is not the interface that .up. made"
  is_gone wg1
  sed -i /^SaveConfig/d /etc/wireguard/wg1.conf
  cp /etc/wireguard/wg1.conf "$WORK/original.conf"

  say "$who: a daemon that up knows nothing of"
  by_hand
  bad $who save wg1
  unchanged "$who, nothing set" "wg1 has no private key"
  on h1 wg set wg1 private-key "$WORK/h1.key"
  bad $who save wg1
  unchanged "$who, a key" "wg1 has no peers"
  on h1 wg setconf wg1 "$WORK/set.conf"
  bad $who save wg1
  unchanged "$who, peers" "wg1 has no address"
  on h1 wg set wg1 listen-port 50011
  address h1 wg1 10.9.0.1/24 fd09::1/64
  good $who save wg1
  expect "$who: what is saved of one that was set up by hand" "ListenPort = 50011" "$(diff "$WORK/original.conf" /etc/wireguard/wg1.conf | sed -n 's/^> //p')"
  cp "$WORK/original.conf" /etc/wireguard/wg1.conf
  good $who down wg1
  is_gone wg1

  say "$who: a key that was taken away"
  good $who up wg1
  on h1 wg set wg1 private-key /dev/null
  bad $who save wg1
  unchanged "$who, no key any more" "wg1 has no private key"
  good $who down wg1
  is_gone wg1

  say "$who: the tunnel came up from another file"
  mkdir -p "$WORK/elsewhere"
  sed 's/^ListenPort.*/ListenPort = 50021\nSaveConfig = true/' "$WORK/original.conf" >"$WORK/elsewhere/wg1.conf"
  good $who up "$WORK/elsewhere/wg1.conf"
  on h1 wg set wg1 listen-port 50022
  bad $who save wg1
  unchanged "$who, another file" "wg1 was brought up from $WORK/elsewhere/wg1.conf"
  good $who save "$WORK/elsewhere/wg1.conf"
  grep -q "^ListenPort = 50022$" "$WORK/elsewhere/wg1.conf" || fail "$who: the file that it came up from is not saved"
  sed -i 's/^ListenPort.*/&\nSaveConfig = true/' /etc/wireguard/wg1.conf
  cp /etc/wireguard/wg1.conf "$WORK/original.conf"
  good $who down wg1
  unchanged "$who, SaveConfig of another file" "wg1 was brought up from $WORK/elsewhere/wg1.conf"
  is_gone wg1
  as_before "$who"
  sed -i /^SaveConfig/d /etc/wireguard/wg1.conf
  cp /etc/wireguard/wg1.conf "$WORK/original.conf"
done
