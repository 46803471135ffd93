#!/usr/bin/env bash
# timeout: 240
# Other programs remove settings of a tunnel: `status` reports it, and `reload` and a full tunnel's supervisor restore them.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
address h2 lo 203.0.113.7/32 2001:db8:7::7/128
ip -n h1 route add default via 192.0.2.2
ip -n h1 -6 route add default via 2001:db8::2
count h2 in beside iifname e2 ip daddr 203.0.113.7
count h2 in beside6 iifname e2 ip6 daddr 2001:db8:7::7

# The removals, as other programs make them.
rules() { # a restart of systemd-networkd removes all rules that it does not know
  local family priority
  for family in -4 -6; do
    for priority in $(ip -n h1 "$family" rule | awk -F: '$1 > 0 && $1 < 32766 { print $1 }'); do
      ip -n h1 "$family" rule del pref "$priority"
    done
  done
}
link() { ip -n h1 link set wg1 down && ip -n h1 link set wg1 up; }
addresses() { ip -n h1 address flush dev wg1; }
ipv6() {
  on h1 sysctl -qw net.ipv6.conf.wg1.disable_ipv6=1
  on h1 sysctl -qw net.ipv6.conf.wg1.disable_ipv6=0
}
route() { ip -n h1 route del default dev wg1 table "$(table_of_tunnel)"; }
mtu() { ip -n h1 link set wg1 mtu 1300; }
mark() { on h1 wg set wg1 fwmark 0x77; }
tables() { on h1 nft flush ruleset; }
flushed() { # nft flush table, of the tunnel's
  local table
  on h1 nft list tables | sed -n 's/^table //p' | while read -r table; do on h1 nft flush table $table; done
}
down() { ip -n h1 link set wg1 down; }
table_of_tunnel() { ip -n h1 route show table all default dev wg1 | sed -n 's/.* table \([0-9]*\).*/\1/p' | head -n 1; }

# Of the host; the order of routes does not matter. The link-local address is the kernel's, not the tunnel's.
sorted_state() {
  ip -n h1 -br addr | sed 's| fe80::[^ ]*||; s| *$||'
  ip -n h1 -4 route show table all | sort
  ip -n h1 -6 route show table all | grep -v '^\(local \)\?fe80:' | sort
  ip -n h1 -4 rule show
  ip -n h1 -6 rule show
  on h1 nft -s list ruleset | grep -vE '^ *(elements|type|}|$)' | sort
  ip -n h1 link show wg1 | grep -o 'mtu [0-9]*'
  on h1 wg show wg1 fwmark
}
is_restored() { diff <(sorted_state) "$WORK/up" >"$WORK/difference"; }
nothing_beside() { # WHEN
  pings h1 203.0.113.7
  pings h1 2001:db8:7::7
  expect "$1: pings beside the tunnel" "0 0" "$(counted h2 beside) $(counted h2 beside6)"
}

tunnel_file wg1 0.0.0.0/0,::/0
say "without a supervisor"
good wg-quick up wg1
nothing_beside "up"
sorted_state >"$WORK/up"
good linerate reload wg1
said "an untouched tunnel" "nothing has changed"
for what in rules link addresses ipv6 route mtu mark tables flushed down; do
  $what
  ! is_restored || fail "$what: nothing was removed"
  bad linerate status wg1 --check
  good linerate status wg1
  case $what in
    down) said "$what: status" "the interface is down" ;;
    *) said "$what: status" "another program removed .*\`linerate reload wg1\` restores that" ;;
  esac
  good linerate reload wg1
  is_restored || fail "$what: reload has not restored this: $(tr '\n' ' ' <"$WORK/difference")"
  good linerate status wg1 --check
  nothing_beside "$what, then reload"
done
good wg-quick down wg1
is_gone wg1

say "name servers"
tunnel_file wg1 0.0.0.0/0,::/0 "DNS = 10.9.0.2"
good wg-quick up wg1
echo "nameserver 192.0.2.9" >"$WORK/etc/resolv.conf"
good linerate status wg1
said "status" "another program removed"
good linerate reload wg1
grep -q "^nameserver 10.9.0.2" /etc/resolv.conf || fail "reload has not set the name server again: $(cat /etc/resolv.conf)"
good wg-quick down wg1
is_gone wg1
expect "the other's name server" "nameserver 192.0.2.9" "$(cat /etc/resolv.conf)"
: >"$WORK/etc/resolv.conf"

say "settings that the file's own hooks remove stay removed"
tunnel_file wg1 0.0.0.0/0,::/0 'PostUp = ip -6 route del default dev %i table $(ip -6 route show table all default dev %i | sed "s/.* table \([0-9]*\).*/\1/")'
good wg-quick up wg1
sorted_state >"$WORK/up"
ip -n h1 -6 route show table all default | grep -q wg1 && fail "the hook has removed no route"
pings h1 203.0.113.7
good linerate status wg1 --check
good linerate reload wg1
said "a reload" "nothing has changed"
rules
good linerate reload wg1
is_restored || fail "reload has not restored this: $(tr '\n' ' ' <"$WORK/difference")"
good wg-quick down wg1
is_gone wg1

say "the chains of a gateway and of a kill switch, one after the other"
chains() { # TABLE
  on h1 nft list table inet "$1" | sed -n 's/^.chain \(.*\) {$/\1/p'
}
for setting in "Gateway = lan1" "KillSwitch = true"; do
  tunnel_file wg1 0.0.0.0/0,::/0 "#! $setting" "#! Masquerade = ipv4"
  good wg-quick up wg1 # which leaves no supervisor
  flushed=0
  sorted_state >"$WORK/up"
  for table in $(on h1 nft list tables | sed -n 's/^table inet \(.*wg1\)$/\1/p'); do
    for chain in $(chains "$table"); do
      on h1 nft flush chain inet "$table" "$chain"
      ! is_restored || continue # it had no rule
      bad linerate status wg1 --check
      good linerate reload wg1
      is_restored || fail "$chain of $table: reload has not restored this: $(tr '\n' ' ' <"$WORK/difference")"
      say "$chain of $table is restored"
      flushed=$((flushed + 1))
    done
  done
  expect_at_least "$setting: chains that had rules" 2 "$flushed"
  good wg-quick down wg1
  is_gone wg1
done

say "with a supervisor"
tunnel_file wg1 0.0.0.0/0,::/0
good linerate up wg1
is_supervised() { supervisor_of wg1 >/dev/null; }
wait_for 5 "the supervisor" is_supervised
for what in rules link addresses ipv6 route mtu tables flushed down; do
  sorted_state >"$WORK/up"
  on h2 nft reset counters >/dev/null
  $what
  wait_for 10 "$what: what was removed to be restored" is_restored
  nothing_beside "$what, restored"
  # A supervisor that has restored a few things waits for a minute: the next one counts anew.
  good linerate down wg1
  is_gone wg1
  good linerate up wg1
  wait_for 5 "the supervisor" is_supervised
done
sorted_state >"$WORK/up"

say "a program that removes it again and again"
has_given_up() {
  ! is_restored || rules
  turn linerate status wg1
  grep -q "another program removes this again and again" "$WORK/said"
}
wait_for 30 "the supervisor to say so" has_given_up
bad linerate status wg1 --check
good linerate reload wg1
good linerate down wg1
is_gone wg1
