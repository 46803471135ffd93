#!/usr/bin/env bash
# Files elsewhere than in /etc/wireguard, by a link, and interfaces with every name that is allowed.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
mkdir -m 700 "$WORK/elsewhere"
tunnel_file wg1 10.9.0.2/32
for who in wg-quick linerate; do
  say "$who: a path"
  remember
  mv /etc/wireguard/wg1.conf "$WORK/elsewhere/wg1.conf"
  good $who up "$WORK/elsewhere/wg1.conf"
  pings h1 10.9.0.2
  on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 11
  good $who save "$WORK/elsewhere/wg1.conf"
  grep -q "^PersistentKeepalive = 11" "$WORK/elsewhere/wg1.conf" || fail "$who: save has not written the file"
  good linerate reload "$WORK/elsewhere/wg1.conf"
  said "$who" "nothing has changed"
  good $who down "$WORK/elsewhere/wg1.conf"
  is_gone wg1
  as_before "$who down"
  good $who up "$WORK/elsewhere/wg1.conf"
  good $who down wg1 # it knows what it brought up
  is_gone wg1
  as_before "$who down by the name alone"

  say "$who: a link, whose name is the interface's"
  mv "$WORK/elsewhere/wg1.conf" "$WORK/elsewhere/office.conf"
  ln -s "$WORK/elsewhere/office.conf" /etc/wireguard/wg1.conf
  good $who up wg1
  pings h1 10.9.0.2
  on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 21
  good $who save wg1
  [[ -L /etc/wireguard/wg1.conf ]] || fail "$who: save has put a file in the place of a link"
  grep -q "^PersistentKeepalive = 21" "$WORK/elsewhere/office.conf" || fail "$who: save has not written the file behind the link"
  good $who down wg1
  is_gone wg1
  as_before "$who down"
  rm /etc/wireguard/wg1.conf
  sed /^PersistentKeepalive/d "$WORK/elsewhere/office.conf" >/etc/wireguard/wg1.conf
  chmod 600 /etc/wireguard/wg1.conf
done

say "names"
own_file /etc/hosts <<<"192.0.2.2 h2.example.com"
for name in a 0 wg.15-chars_wg+ a=b wg1.conf; do
  ENDPOINT=h2.example.com:50002 tunnel_file "$name" 0.0.0.0/0,::/0 "DNS = 192.0.2.53" "#! KillSwitch = true" "PostUp = test %i = $name"
  for who in wg-quick linerate; do
    remember
    # wg1.conf.conf is the file of an interface wg1.conf.
    good $who up "$name"
    pings h1 10.9.0.2
    good linerate reload "$name"
    said "$name" "nothing has changed"
    good linerate status "$name" --check
    good $who down "$name"
    is_gone "$name"
    as_before "$who down of $name"
  done
done
