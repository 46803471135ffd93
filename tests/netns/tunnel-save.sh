#!/usr/bin/env bash
# `save` writes what runs into the file and loses nothing of it: comments, order, spacing, names of peers and of hosts.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
key h3
own_file /etc/hosts <<<"192.0.2.2 h2.example.com"
(umask 077 && cat >/etc/wireguard/wg1.conf) <<CONF
# Do not touch this line.

[Interface]   # ours
  PrivateKey=$(cat "$WORK/h1.key")  # the key
Address    =   10.9.0.1/24 , fd09::1/64
#ListenPort = 1
ListenPort = 50001
#! KillSwitch = false
PostUp = true; echo "a # b" >/dev/null

[Peer]
# Name = the other end
Endpoint = h2.example.com:50002   # by name
PublicKey = $(public h2)
AllowedIPs = 10.9.0.2/32
AllowedIPs = fd09::2/128

# The end.
CONF
original=$WORK/original.conf
cp -p /etc/wireguard/wg1.conf "$original"
changes() { diff "$original" /etc/wireguard/wg1.conf || true; }

for who in wg-quick linerate; do
  cp -p "$original" /etc/wireguard/wg1.conf
  remember
  good $who up wg1
  pings h1 10.9.0.2
  good $who save wg1
  expect "$who: what has changed without a change" "" "$(changes)"

  on h1 wg set wg1 peer "$(public h3)" allowed-ips 10.9.0.3/32 endpoint 192.0.2.3:50003
  on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 25
  on h1 wg set wg1 listen-port 50011
  good $who save wg1
  say "$who: the changes"
  changes
  expect "$who: lines that have gone" "< ListenPort = 50001" "$(changes | grep '^<')"
  expect "$who: lines that have come" "ListenPort = 50011 PersistentKeepalive = 25 [Peer] PublicKey = $(public h3) AllowedIPs = 10.9.0.3/32 Endpoint = 192.0.2.3:50003" \
    "$(changes | sed -n 's/^> //p' | grep . | awk '{ print }' | xargs -d '\n')"
  expect "$who: mode" 600 "$(stat -c %a /etc/wireguard/wg1.conf)"
  good $who save wg1
  cp /etc/wireguard/wg1.conf "$WORK/saved.conf"
  good linerate reload wg1
  said "$who: a reload of what was saved" "nothing has changed"
  good $who down wg1
  is_gone wg1
  as_before "$who down"

  say "$who: what was saved comes up as it ran"
  good $who up wg1
  expect "$who: peers" 2 "$(on h1 wg show wg1 peers | wc -l)"
  expect "$who: port" 50011 "$(on h1 wg show wg1 listen-port)"
  expect "$who: keepalive" 25 "$(of_peer h1 wg1 persistent-keepalive h2 2)"
  on h1 wg set wg1 peer "$(public h3)" remove
  good $who save wg1
  grep -q "$(public h3)" /etc/wireguard/wg1.conf && fail "$who: a peer that was removed is in the saved file"

  say "$who: a file that somebody edited meanwhile"
  on h1 wg set wg1 listen-port 50021
  sed -i 's/10.9.0.1\/24/10.9.0.99\/24/' /etc/wireguard/wg1.conf
  cp /etc/wireguard/wg1.conf "$WORK/edited.conf"
  turn $who save wg1
  grep -q 10.9.0.99/24 /etc/wireguard/wg1.conf || fail "$who: an edit of the file is lost"
  cp "$WORK/edited.conf" /etc/wireguard/wg1.conf
  good $who down wg1
  is_gone wg1

  say "$who: SaveConfig"
  sed 's/^ListenPort = .*/&\nSaveConfig = true/' "$original" >/etc/wireguard/wg1.conf
  good $who up wg1
  on h1 wg set wg1 listen-port 50031
  good $who down wg1
  is_gone wg1
  grep -q "^ListenPort = 50031$" /etc/wireguard/wg1.conf || fail "$who: down has not saved"
  grep -q "# by name" /etc/wireguard/wg1.conf || fail "$who: down has lost a comment"
  as_before "$who down"

  say "$who: SaveConfig, and a mistake that somebody made in the file meanwhile"
  good $who up wg1
  on h1 wg set wg1 listen-port 50041
  echo "AllowedIPs = 10.9.0.4/32, 10.9.0.5.6/32" >>/etc/wireguard/wg1.conf
  cp /etc/wireguard/wg1.conf "$WORK/edited.conf"
  turn $who down wg1
  is_gone wg1
  said "$who, a mistake in the file" "10.9.0.5.6/32.*"
  said "$who, what became of it" "not saved"
  cmp "$WORK/edited.conf" /etc/wireguard/wg1.conf || fail "$who: down has changed a file with a mistake"
done

say "after a reload what it changed is in force, not what up did"
for server in 192.0.2.53 192.0.2.54 ""; do
  sed "s/^ListenPort = .*/&${server:+\nDNS = $server}/" "$original" >/etc/wireguard/wg1.conf
  if [[ $server == 192.0.2.53 ]]; then good linerate up wg1; else good linerate reload wg1; fi
  good linerate save wg1
  expect "the name servers in the saved file" "$server" "$(sed -n 's/^DNS = //p' /etc/wireguard/wg1.conf)"
done
good linerate down wg1
