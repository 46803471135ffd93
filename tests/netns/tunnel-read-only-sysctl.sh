#!/usr/bin/env bash
# In a container /proc/sys is read-only: a full tunnel comes up without src_valid_mark, unless a strict filter needs it.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
ip -n h1 route add default via 192.0.2.2
address h2 lo 203.0.113.7/32
on h1 sysctl -qw net.ipv4.conf.all.src_valid_mark=0
read_only() { mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys; }
remember
read_only
for who in linerate wg-quick; do
  say "$who: without a strict filter"
  tunnel_file wg1 0.0.0.0/0,::/0
  good $who up wg1
  said "$who: the warning" "src_valid_mark cannot be set to 1 \(Read-only file system\).*--sysctl net.ipv4.conf.all.src_valid_mark=1"
  pings h1 203.0.113.7
  pings h1 10.9.0.2
  good linerate reload wg1
  pings h1 203.0.113.7
  good $who down wg1
  is_gone wg1
  as_before "$who down"

  say "$who: with a strict filter the sysctl is needed"
  umount /proc/sys
  on h1 sysctl -qw net.ipv4.conf.e1.rp_filter=1
  read_only
  bad $who up wg1
  said "$who: the error" "strict on e1 .*--sysctl net.ipv4.conf.all.src_valid_mark=1"
  is_gone wg1
  as_before "$who that is refused"
  umount /proc/sys
  on h1 sysctl -qw net.ipv4.conf.e1.rp_filter=0
  read_only
done

say "with a strict filter nothing would come back without it from behind a router, and all with it"
address h2 lo 198.51.100.2/32
ENDPOINT=198.51.100.2:50002 tunnel_file wg1 0.0.0.0/0,::/0
umount /proc/sys
on h1 sysctl -qw net.ipv4.conf.e1.rp_filter=1
good linerate up wg1
pings h1 203.0.113.7
on h1 sysctl -qw net.ipv4.conf.all.src_valid_mark=0
no_ping h1 203.0.113.7
on h1 sysctl -qw net.ipv4.conf.all.src_valid_mark=1
pings h1 203.0.113.7
good linerate down wg1

say "name servers that could not be set are not taken away, and are no mistake of \`down'"
on h1 sysctl -qw net.ipv4.conf.e1.rp_filter=0
cat >"$WORK/bin/resolvconf" <<'RESOLVCONF'
#!/bin/sh
echo "$*" >>/run/scenario/resolvconf
echo "signature mismatch: /etc/resolv.conf" >&2
exit 1
RESOLVCONF
chmod +x "$WORK/bin/resolvconf"
PATH=$WORK/bin:$PATH
tunnel_file wg1 10.9.0.2/32 "DNS = 10.9.0.2"
for who in linerate wg-quick; do
  good $who up wg1
  said "$who: the warning" "the name servers are not set"
  : >"$WORK/resolvconf"
  good $who down wg1
  expect "$who down: what is asked of resolvconf" "" "$(cat "$WORK/resolvconf")"
  is_gone wg1
done
