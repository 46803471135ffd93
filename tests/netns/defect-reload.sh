#!/usr/bin/env bash
# D2, D3: what a file does not set, a mark, a port, a key, is not taken away by a reload; and down leaves no rule.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
ip -n h1 route add default via 192.0.2.2
strip() { # WHO : what WHO's wg-quick strips of wg1's file
  if [[ $1 == original ]]; then PATH=$WORK/bin:$PATH at h1 "$WORK/bin/wg-quick" strip wg1; else at h1 "$LINERATE" wg-quick strip wg1; fi
}
# What systemd's unit does at a reload.
sync() { on h1 wg syncconf wg1 <(strip "$1" 2>/dev/null); }
rules_of_tunnels() { { ip -n h1 -4 rule && ip -n h1 -6 rule; } | grep -c 'suppress_prefixlength\|fwmark' || true; }

say "D2: a full tunnel without FwMark and ListenPort"
tunnel_file wg1 0.0.0.0/0,::/0
if has_original; then
  good original up wg1
  port=$(on h1 wg show wg1 listen-port)
  sync original
  expect "the original: the mark after a reload" off "$(on h1 wg show wg1 fwmark)"
  [[ $(on h1 wg show wg1 listen-port) != "$port" ]] || fail "the original: expected another port after a reload, saw $port"
  turn original down wg1
  expect "the original: rules that are left" 4 "$(rules_of_tunnels)"
  new_h1
  ip -n h1 route add default via 192.0.2.2
fi
for who in wg-quick linerate; do
  remember
  good $who up wg1
  pings h1 10.9.0.2
  mark=$(on h1 wg show wg1 fwmark) port=$(on h1 wg show wg1 listen-port)
  sync $who
  expect "$who: the mark after syncconf" "$mark" "$(on h1 wg show wg1 fwmark)"
  expect "$who: the port after syncconf" "$port" "$(on h1 wg show wg1 listen-port)"
  good linerate reload wg1
  expect "$who: the mark after reload" "$mark" "$(on h1 wg show wg1 fwmark)"
  expect "$who: the port after reload" "$port" "$(on h1 wg show wg1 listen-port)"
  pings h1 10.9.0.2
  # Even a mark that others have taken away is no reason to leave rules behind.
  on h1 wg set wg1 fwmark 0
  good $who down wg1
  is_gone wg1
  as_before "$who down"
done

say "D3: the key comes from a command"
tunnel_file wg1 10.9.0.2/32,fd09::2/128 "PreUp = wg set %i private-key $WORK/h1.key"
sed -i /PrivateKey/d /etc/wireguard/wg1.conf
if has_original; then
  # The original's wg setconf takes the key away at once, so that it is set again when all is done.
  sed -i s/PreUp/PostUp/ /etc/wireguard/wg1.conf
  good original up wg1
  sync original
  expect "the original: the key after a reload" "(none)" "$(on h1 wg show wg1 private-key)"
  good original down wg1
  is_gone wg1
  sed -i s/PostUp/PreUp/ /etc/wireguard/wg1.conf
fi
for who in wg-quick linerate; do
  remember
  good $who up wg1
  expect "$who: the key" "$(cat "$WORK/h1.key")" "$(on h1 wg show wg1 private-key)"
  sync $who
  expect "$who: the key after syncconf" "$(cat "$WORK/h1.key")" "$(on h1 wg show wg1 private-key)"
  good linerate reload wg1
  expect "$who: the key after reload" "$(cat "$WORK/h1.key")" "$(on h1 wg show wg1 private-key)"
  pings h1 10.9.0.2
  good $who down wg1
  is_gone wg1
  as_before "$who down"
done
