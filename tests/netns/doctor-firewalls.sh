#!/usr/bin/env bash
# timeout: 240
# doctor finds packets of a tunnel that common firewalls of servers drop: to its port, and forwarded ones. Its remedies work, and
# it finds nothing if the firewall lets clients in and out.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
source "$(dirname "$0")/firewalls.bash"
source "$(dirname "$0")/firewalld.bash"
source "$(dirname "$0")/doctor.bash"
need jq nft nc iptables ip6tables
has_original || skip "wg-quick or wireguard-go is not installed"

laptop() { # up | down
  WG_QUICK_USERSPACE_IMPLEMENTATION=$ENGINE PATH=$WORK/bin:$PATH at laptop timeout 60 "$WORK/bin/wg-quick" "$1" "$WORK/wg9.conf" >>"$SCENARIO_LOGS/said.log" 2>&1
}
# A connection, as ufw lets echo requests pass by itself.
connection() { # ADDRESS
  ip netns exec web nc -l "$1" 7171 >"$WORK/connected" </dev/null &
  local server=$!
  wait_for 5 "nc to listen" listens web 7171
  echo hello | on laptop timeout 3 nc -N -w 2 "$1" 7171 >/dev/null 2>&1 || true
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  [[ $(cat "$WORK/connected") == hello ]]
}
connects() { connection "$1" || fail "a connection to $1: there is none" && say "a connection to $1: it is there"; }
connects_not() { ! connection "$1" || fail "a connection to $1: expected none" && say "a connection to $1: none, as it should be"; }
# A client gets in anew, and out on the other side.
works() { # WHAT
  anew_port
  healthy "$1, before the first client" h1 wg0
  laptop up
  pings laptop 198.51.100.2
  pings laptop 2001:db8:3::2
  connects 198.51.100.2
  connects 2001:db8:3::2
  healthy "$1, with a client" h1 wg0
  laptop down
  healthy "$1, and after it has gone" h1 wg0
}
# Closes the port, then forwarding: doctor finds each, and its remedy works.
found_and_mended() { # WHAT [FORWARD]
  anew_port
  finds "$1" h1 wg0 firewall-drops-port ${2:+firewall-drops-forwarded}
  laptop up
  connects_not 198.51.100.2
  laptop down
  [[ -z ${RULE:-} ]] || tells "$RULE"
  advised "$1" h1 firewall-drops-port
  if [[ -n ${2:-} ]]; then
    finds "$1, with its port open" h1 wg0 firewall-drops-forwarded
    advised "$1" h1 firewall-drops-forwarded
  fi
  works "$1, after what was advised"
}
# No client has a session, so the doctor's findings come from the rules alone.
anew_port() {
  good linerate down wg0
  good linerate up wg0
}
# The rules that the real fail2ban makes by one of its actions, for a jail with an address.
shut_out() { # ACTION
  local folder=$WORK/fail2ban-$1
  mkdir -p "$folder"
  cp -a /etc/fail2ban/. "$folder"
  rm -rf "$folder"/jail.d/* "$folder"/jail.local
  : >"$folder/log"
  printf '%s\n' "[DEFAULT]" "banaction = $1" "backend = polling" "[sshd]" "enabled = true" "logpath = $folder/log" >"$folder/jail.local"
  printf '%s\n' "[Definition]" "dbfile = None" >"$folder/fail2ban.local"
  at h1 fail2ban-client -b -c "$folder" -s "$folder/socket" -p "$folder/pid" --logtarget "$SCENARIO_LOGS/fail2ban.log" start >>"$SCENARIO_LOGS/said.log" 2>&1 || fail "fail2ban does not start: $(tail -n 3 "$SCENARIO_LOGS/said.log")"
  at h1 fail2ban-client -c "$folder" -s "$folder/socket" set sshd banip 198.51.100.77 >/dev/null
  wait_for 10 "the rules of fail2ban" eval 'on h1 nft list ruleset 2>/dev/null | grep -q "198.51.100.77\|f2b"'
}
no_firewall() {
  forget_firewalls
  on h1 iptables -P INPUT ACCEPT
  on h1 ip6tables -P INPUT ACCEPT
  on h1 nft flush ruleset
  good linerate down wg0
  good linerate up wg0
}

internet
server init
at h1 "$LINERATE" client add laptop >"$WORK/wg9.conf" 2>>"$SCENARIO_LOGS/said.log"
chmod 600 "$WORK/wg9.conf"
works "no firewall"

say "the usual rules of iptables"
closed_input() { # IPTABLES
  on h1 "$1" -A INPUT -i lo -j ACCEPT
  on h1 "$1" -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
  on h1 "$1" -A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
  on h1 "$1" -A INPUT -p tcp -m multiport --dports 80,443 -m comment --comment "the site" -j ACCEPT
}
icmpv6() { on h1 "$1" -A INPUT -p ipv6-icmp -j ACCEPT; }
for iptables in iptables ip6tables; do
  closed_input $iptables
  on h1 $iptables -P INPUT DROP
done
icmpv6 ip6tables
RULE="no rule of chain INPUT accepts them, and its policy is drop" found_and_mended "a policy of iptables"
no_firewall

say "rules that reject at the end, as distributions ship them"
for iptables in iptables ip6tables; do
  closed_input $iptables
  [[ $iptables == iptables ]] || icmpv6 ip6tables
  on h1 $iptables -A INPUT -j REJECT
  on h1 $iptables -A FORWARD -j REJECT
done
RULE="rule [56] \(handle [0-9]+\) of chain INPUT drops them" found_and_mended "last rules of iptables" forward
no_firewall

if type -P iptables-legacy >/dev/null && on h1 iptables-legacy -S >/dev/null 2>&1 && on h1 ip6tables-legacy -S >/dev/null 2>&1; then
  say "the older iptables"
  for iptables in iptables-legacy ip6tables-legacy; do
    closed_input $iptables
    on h1 $iptables -P INPUT DROP
    on h1 $iptables -P FORWARD DROP
  done
  icmpv6 ip6tables-legacy
  RULE="of iptables-legacy drops the datagrams of peers: no rule of chain INPUT" found_and_mended "the older iptables" forward
  for iptables in iptables-legacy ip6tables-legacy; do
    on h1 $iptables -P INPUT ACCEPT
    on h1 $iptables -P FORWARD ACCEPT
    on h1 $iptables -F
    on h1 $iptables -X
  done
fi

if type -P ufw >/dev/null; then
  say "ufw"
  for folder in /etc/ufw /etc/default; do
    cp -a "$folder" "$WORK/${folder##*/}"
    mount --bind "$WORK/${folder##*/}" "$folder"
  done
  if on h1 ufw --force enable >"$WORK/enabled" 2>&1; then
    on h1 ufw allow 22/tcp
    RULE="ufw's chain INPUT of the firewall table ip filter drops the datagrams of peers" found_and_mended "ufw" forward
    on h1 ufw --force reset >/dev/null
    on h1 ufw --force enable >/dev/null
    on h1 ufw allow 51820/udp
    anew_port
    finds "ufw with the port alone" h1 wg0 firewall-drops-forwarded
    laptop up
    pings laptop "$(shown '.addresses[0]' | tr -d '"' | cut -d/ -f1)"
    connects_not 198.51.100.2
    finds "ufw, and a client that is connected" h1 wg0 firewall-drops-forwarded
    laptop down
    advised "ufw with the port alone" h1 firewall-drops-forwarded
    works "ufw with the port alone, after what was advised"
    say "a limit of ufw lets its first connections in"
    on h1 ufw delete allow 51820/udp
    on h1 ufw limit 51820/udp
    works "a limit of ufw"
    on h1 ufw disable
  else
    say "ufw does not work here: $(tail -n 1 "$WORK/enabled")"
  fi
  no_firewall
fi

if type -P firewalld firewall-cmd dbus-daemon >/dev/null; then
  say "firewalld"
  cp -a /etc/firewalld "$WORK/firewalld"
  mount --bind "$WORK/firewalld" /etc/firewalld
  mkdir -p /run/dbus
  dbus-daemon --system --nofork --nopidfile >"$SCENARIO_LOGS/dbus.log" 2>&1 &
  wait_for 10 "the bus" test -S /run/dbus/system_bus_socket
  start_firewalld
  if on h1 firewall-cmd --state; then
    on h1 firewall-cmd --permanent --zone=public --add-interface=e1
    on h1 firewall-cmd --reload
    RULE="firewalld's chain .* of the firewall table inet firewalld drops the datagrams of peers" found_and_mended "firewalld, which forwards within a zone"
    on h1 firewall-cmd --permanent --zone=public --remove-interface=e1
    on h1 firewall-cmd --permanent --zone=work --add-interface=e1
    on h1 firewall-cmd --reload
    anew_port
    finds "firewalld with the uplink in another zone" h1 wg0 firewall-drops-forwarded
    advised "that zone" h1 firewall-drops-forwarded
    works "firewalld with the uplink in another zone, after what was advised"
    stop_firewalld
  else
    say "firewalld does not run here: $(tail -n 1 "$SCENARIO_LOGS/firewalld.log")"
  fi
  no_firewall
fi

if type -P fail2ban-server >/dev/null; then
  say "fail2ban, which has shut out somebody"
  for action in iptables-multiport iptables-allports nftables-multiport nftables-allports; do
    shut_out $action
    works "fail2ban with $action"
    no_firewall
  done
fi

say "rulesets of nftables"
example=/usr/share/doc/nftables/examples/workstation.nft
if [[ -e $example ]]; then
  on h1 nft -f "$example"
  RULE="rule [45] \(handle [0-9]+\) of chain input drops them" found_and_mended "the example of a workstation"
  no_firewall
fi
site_rules
on h1 nft 'add rule inet site input meta l4proto ipv6-icmp accept'
found_and_mended "a site's own rules" forward
no_firewall

say "a drop before the routes are asked"
on h1 iptables -t raw -A PREROUTING -p udp --dport 51820 -j DROP
RULE="chain PREROUTING" found_and_mended "a rule of the table raw"
no_firewall

say "Docker"
docker_rules
anew_port
finds "Docker's rules" h1 wg0 firewall-drops-forwarded
advised "Docker's rules" h1 firewall-drops-forwarded
works "Docker's rules, after what was advised"
no_firewall

say "a doubt is said, with the rule that it is about, until a client gets in"
on h1 iptables -A INPUT -m mac --mac-source "$(ip -n inet -br link show i1 | awk '{ print $3 }')" -j ACCEPT
on h1 iptables -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
on h1 iptables -P INPUT DROP
anew_port
finds "a condition that is not read" h1 wg0 firewall-drops-port
tells "may drop datagrams"
tells "rule 1 \(handle [0-9]+\) of chain INPUT may accept them"
laptop up
pings laptop 198.51.100.2
healthy "that condition, with a client" h1 wg0
laptop down
