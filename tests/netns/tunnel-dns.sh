#!/usr/bin/env bash
# Name servers on a host without a resolver service: set in /etc/resolv.conf, restored, edits by others kept; else a warning.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
! type -P resolvconf resolvectl >/dev/null || skip "there is a program that manages name servers"

hosts_with_files
file=$WORK/etc/resolv.conf
plain() { printf '# by hand\nnameserver 192.0.2.54\nsearch example.org\noptions ndots:2\n' >"$file"; }
# The first word of every line that counts.
lines() { grep -v '^[#;]' /etc/resolv.conf | grep . | tr '\n' '|'; }

for who in wg-quick linerate; do
  say "$who: all questions to the tunnel's"
  tunnel_file wg1 10.9.0.2/32 "DNS = 192.0.2.53, 2001:db8::53"
  plain
  remember
  good $who up wg1
  lines
  expect "$who: servers" "192.0.2.53 2001:db8::53" "$(awk '/^nameserver/ { print $2 }' /etc/resolv.conf | xargs)"
  good $who down wg1
  is_gone wg1
  as_before "$who down"

  say "$who: a search domain beside a server, and alone"
  tunnel_file wg1 0.0.0.0/0 "DNS = 192.0.2.53, corp.example"
  good $who up wg1
  grep -q "^search.*corp.example" /etc/resolv.conf || fail "$who: the domain is not searched: $(lines)"
  good $who down wg1
  is_gone wg1
  as_before "$who down"
  tunnel_file wg1 10.9.0.2/32 "DNS = corp.example"
  good $who up wg1
  grep -q "^search.*corp.example" /etc/resolv.conf || fail "$who: the domain is not searched: $(lines)"
  expect "$who: servers" 192.0.2.54 "$(awk '/^nameserver/ { print $2 }' /etc/resolv.conf | xargs)"
  good $who down wg1
  is_gone wg1
  as_before "$who down"

  say "$who: somebody edits the file meanwhile"
  tunnel_file wg1 10.9.0.2/32 "DNS = 192.0.2.53"
  good $who up wg1
  echo "options edns0" >>"$file"
  good $who down wg1
  is_gone wg1
  grep -q "^options edns0" "$file" || fail "$who: an edit is lost: $(lines)"
  expect "$who: servers" 192.0.2.54 "$(awk '/^nameserver/ { print $2 }' /etc/resolv.conf | xargs)"
  say "$who: somebody replaces the file meanwhile, as a DHCP client does"
  plain
  good $who up wg1
  echo "nameserver 192.0.2.99" >"$file"
  good $who down wg1
  is_gone wg1
  expect "$who: the file" "nameserver 192.0.2.99|" "$(lines)"

  say "$who: a file that cannot be written"
  plain
  remember
  mount -o remount,bind,ro /etc/resolv.conf
  good $who up wg1
  said "$who" "Warning: .*resolv.conf"
  pings h1 10.9.0.2
  turn $who down wg1
  is_gone wg1
  mount -o remount,bind,rw /etc/resolv.conf
  as_before "$who down"
done

say "two tunnels, in both orders of going"
key h3
sed "s/10.9.0.1\/24.*/10.8.0.1\/24/; s/192.0.2.53/192.0.2.63/; s/^AllowedIPs.*/AllowedIPs = 10.8.0.2\/32/" /etc/wireguard/wg1.conf >/etc/wireguard/wg3.conf
for order in "wg1 wg3" "wg3 wg1"; do
  plain
  remember
  good linerate up wg1
  good linerate up wg3
  for name in $order; do
    good linerate down "$name"
    is_gone "$name"
  done
  as_before "down of $order"
done
