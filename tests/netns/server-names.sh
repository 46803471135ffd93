#!/usr/bin/env bash
# timeout: 180
# A client of a new server resolves names through a full tunnel: by the host's own name servers, public or in the host's
# network, also those behind systemd-resolved's stub. If the host has none, `init` and `client add` say so.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
need jq dnsmasq

own_file /etc/nsswitch.conf <<<"hosts: dns"
internet
# A home: the router is 192.168.1.1, and a name server for those in its network.
ip -n h1 address add 192.168.1.5/24 dev e1
ip -n inet address add 192.168.1.1/24 dev i1
name_server() { # HOST ADDRESS...
  on "$1" dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --bind-interfaces --user=root \
    $(printf -- '--listen-address=%s ' "${@:2}") --address=/www.example.com/198.51.100.2 --pid-file="$WORK/$1.pid" >>"$SCENARIO_LOGS/dnsmasq.log" 2>&1 &
  wait_for 5 "the name server on $1" listens_udp "$1" 53
}
name_server web 198.51.100.2 2001:db8:3::2
name_server inet 192.168.1.1
# The laptop's own name server is an address on its LAN without a host.
asks() { # NAME-SERVERS : /etc/resolv.conf
  printf 'nameserver %s\n' "$@" >"$WORK/etc/resolv.conf"
}
resolves() { [[ $(at laptop timeout 20 getent ahostsv4 www.example.com | awk '{ print $1; exit }') == 198.51.100.2 ]]; }
laptop() { at laptop timeout 60 "$LINERATE" "$1" "$WORK/wg9.conf" >>"$SCENARIO_LOGS/said.log" 2>&1; } # VERB
phone() { # WHAT DNS : a new client's file has these name servers, and names are found with it
  good linerate client add phone --output "$WORK/wg9.conf"
  if grep -q "no name server" "$WORK/said"; then fail "$1: $(cat "$WORK/said")"; fi
  expect "$1" "DNS = $2" "$(grep ^DNS "$WORK/wg9.conf")"
  asks 192.0.2.250
  laptop up
  resolves || fail "$1: the laptop finds no name with $(cat /etc/resolv.conf)"
  say "$1: the laptop finds a name"
  laptop down
  rm "$WORK/wg9.conf"
  server remove --yes
  is_gone wg0
}

say "public ones"
asks 198.51.100.2 2001:db8:3::2
server init
said "what is shown" "their DNS +198.51.100.2, 2001:db8:3::2"
phone "public name servers" "198.51.100.2, 2001:db8:3::2"

say "behind the stub of systemd-resolved, in the network of the host"
asks 127.0.0.53
mkdir -p /run/systemd/resolve
echo "nameserver 192.168.1.1" >/run/systemd/resolve/resolv.conf
server init
rm -r /run/systemd
phone "the router's" "192.168.1.1"

say "no name server that a client could reach"
asks 127.0.0.1
server init --no-start
said "what is missing" "clients get no name server.*server set --dns"
good linerate client add phone --output "$WORK/wg9.conf"
said "what is missing" "no name server is named.*server set --dns"
server set --dns 198.51.100.2
good linerate client add tablet --output "$WORK/tablet.conf"
grep -q "^DNS = 198.51.100.2" "$WORK/tablet.conf" || fail "the file has no name server"
say "a private one is in files of clients that reach it only"
server set --dns 192.168.1.1
for how in --full --exclude-lan --split; do
  good linerate client add "c${how#--}" "$how" --output "$WORK/${how#--}.conf"
  expect "name servers with $how" "$([[ $how == --full ]] && echo 1 || echo 0)" "$(grep -c ^DNS "$WORK/${how#--}.conf" || true)"
done
server remove --yes
server init --no-start --dns none
if grep -q "no name server" "$WORK/said"; then fail "none was what was asked for: $(cat "$WORK/said")"; fi
