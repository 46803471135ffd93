#!/usr/bin/env bash
# timeout: 120
# A server on a host with IPv4 only: a full tunnel takes the clients' IPv6 as well, and answers it with an error. If the tunnel
# has no IPv6, because it is off or `--no-ipv6` was given, `init` and `client add` warn of IPv6 past the tunnel; the remedy works.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
source "$(dirname "$0")/doctor.bash"
need jq nft

internet
# The laptop's IPv6 packets that go past its tunnel.
on laptop nft 'add table inet watch; add counter inet watch past; add chain inet watch out { type filter hook output priority 0; }'
on laptop nft 'add rule inet watch out oifname l1 ip6 daddr 2001:db8:3::2 counter name past'
past() { on laptop nft -j list counter inet watch past | jq '.nftables[] | .counter? // empty | .packets'; }
laptop() { at laptop timeout 60 "$LINERATE" "$1" "$WORK/wg9.conf" >>"$SCENARIO_LOGS/said.log" 2>&1; } # VERB
client() { # NAME [OPTION...]
  rm -f "$WORK/wg9.conf"
  good linerate client add "$@" --output "$WORK/wg9.conf"
  cp "$WORK/said" "$WORK/of-client"
}
of_client() { # WHAT PATTERN : what `client add' says
  grep -qE -- "$2" "$WORK/of-client" || fail "$1: expected words like '$2', saw: $(cat "$WORK/of-client")"
}
quiet() { # WHAT : `client add' has nothing to say of IPv6
  if grep -q "IPv6" "$WORK/of-client"; then fail "$1: $(cat "$WORK/of-client")"; fi
}
allows() { expect "$1" "AllowedIPs = $2" "$(grep ^AllowedIPs "$WORK/wg9.conf")"; } # WHAT NETWORKS
keeps_in() { # WHAT ANSWER : IPv4 arrives, IPv6 stays in the tunnel, ping says this of it, and the doctor has nothing to say
  local before
  before=$(past)
  laptop up
  pings laptop 198.51.100.2
  healthy "$1" h1 wg0
  at laptop ping -n -c 1 -W 2 2001:db8:3::2 >"$WORK/ping" 2>&1 && fail "$1: expected no answer over IPv6, one came"
  grep -qE "$2" "$WORK/ping" || fail "$1: expected ping to say '$2', saw: $(tr '\n' ' ' <"$WORK/ping")"
  laptop down
  expect "$1: IPv6 past the tunnel" "$before" "$(past)"
}
removed() { server remove --yes && is_gone wg0; }
asks() { printf 'nameserver %s\n' "$@" >"$WORK/etc/resolv.conf"; }

ip -n h1 -6 route del default
ip -n h1 -6 address flush dev e1 scope global
asks 198.51.100.2

say "no way out for IPv6"
server init
said "the warning about IPv6" "no default route for IPv6.*answered with an error.*--no-ipv6"
healthy "a server for IPv4" h1 wg0
client phone
quiet "IPv6 is in the tunnel"
allows "what the phone sends" "0.0.0.0/0, ::/0"
keeps_in "an IPv4-only uplink" "unreachable|No route"
say "IPv6 comes to the host later"
address h1 e1 2001:db8:1::5/64
ip -n h1 -6 route add default via 2001:db8:1::1
laptop up
wait_for 10 "IPv6 to be forwarded" at laptop ping -n -c 1 -W 1 2001:db8:3::2
laptop down
removed

say "no IPv6 in the tunnel, as was wished, or as an import has it"
server init --no-ipv6
said "the warning about IPv6" "IPv6 traffic of clients goes past the tunnel"
client phone
of_client "where IPv6 goes" "IPv6 .* past the tunnel.*server set --pool fd[0-9a-f:]+::/64"
allows "what the phone sends" "0.0.0.0/0"
client pad --exclude-lan
of_client "where IPv6 goes" "IPv6 .* past the tunnel"
client router --split
quiet "a client that sends only what is for the server's networks"
client phone2
remedy=$(grep -oE 'server set --pool [0-9a-f:/]+' "$WORK/of-client" | head -n 1)
# shellcheck disable=SC2086 # words
good linerate $remedy
in_file "its address" "^Address = fd[0-9a-f:]+::1/64$"
in_file "both are translated" "^#! Masquerade = both$"
client tablet
quiet "IPv6 is in the tunnel"
allows "what the tablet sends" "0.0.0.0/0, ::/0"
laptop up
pings laptop 2001:db8:3::2
laptop down
removed

say "IPv6 is off"
on h1 sysctl -qw net.ipv6.conf.{all,default,e1,lo}.disable_ipv6=1
asks 198.51.100.2 2001:db8:3::2
server init
said "the warning about IPv6" "IPv6 is off on this host.*past the tunnel.*client-allowed-ips 0.0.0.0/0,::/0"
healthy "a server where IPv6 is off" h1 wg0
client phone
of_client "where IPv6 goes" "IPv6 .* past the tunnel.*client-allowed-ips 0.0.0.0/0,::/0"
expect "the name servers" "DNS = 198.51.100.2" "$(grep ^DNS "$WORK/wg9.conf")"
server set --client-allowed-ips 0.0.0.0/0,::/0
client tablet
quiet "IPv6 ends in the tunnel"
keeps_in "IPv6 is off on the server" "100% packet loss"
removed
server init --prefix6 fd00:1::/64
client phone
of_client "IPv6 without an answer" "IPv6 is off on this host.*no answer"
removed

say "the kernel shows no IPv6"
mount -t tmpfs tmpfs /proc/sys/net/ipv6
server init
said "the warning about IPv6" "IPv6 is off on this host"
client phone
allows "what the phone sends" "0.0.0.0/0"
laptop up
pings laptop 198.51.100.2
laptop down
removed
