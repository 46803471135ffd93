#!/usr/bin/env bash
# timeout: 120
# A server and a client, a command each: with the exported file and the original wg-quick, the client reaches the internet
# through the server by IPv4 and IPv6, with translated and with routed addresses.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
need jq
has_original || skip "wg-quick or wireguard-go is not installed"

internet
remember_all
seen() { # web's neighbour for what came: the source address of a family's last echo request
  on web nft list set inet seen "$1" | grep -oE '[0-9a-f]*[.:][0-9a-f.:]+' | tail -n 1
}
on web nft -f - <<'NFT'
table inet seen {
  set v4 { type ipv4_addr; flags dynamic; }
  set v6 { type ipv6_addr; flags dynamic; }
  chain in {
    type filter hook input priority 0;
    icmp type echo-request add @v4 { ip saddr }
    icmpv6 type echo-request add @v6 { ip6 saddr }
  }
}
NFT
forget_seen() { on web nft flush set inet seen v4 && on web nft flush set inet seen v6; }
laptop_up() {
  WG_QUICK_USERSPACE_IMPLEMENTATION=$ENGINE PATH=$WORK/bin:$PATH at laptop timeout 60 "$WORK/bin/wg-quick" up "$WORK/wg9.conf" >>"$SCENARIO_LOGS/said.log" 2>&1
}
laptop_down() {
  WG_QUICK_USERSPACE_IMPLEMENTATION=$ENGINE PATH=$WORK/bin:$PATH at laptop timeout 60 "$WORK/bin/wg-quick" down "$WORK/wg9.conf" >>"$SCENARIO_LOGS/said.log" 2>&1
}
client() { # NAME : adds it, with its file as the laptop's
  at h1 "$LINERATE" client add "$1" >"$WORK/wg9.conf" 2>>"$SCENARIO_LOGS/said.log"
  chmod 600 "$WORK/wg9.conf"
}

say "translated addresses"
server init
client laptop
laptop_up
pings laptop 198.51.100.2
pings laptop 2001:db8:3::2
expect "where the laptop's IPv4 comes from" 203.0.113.5 "$(seen v4)"
expect "where the laptop's IPv6 comes from" 2001:db8:1::5 "$(seen v6)"
no_ping web "$(sed -n 's/^Address = \([0-9.]*\).*/\1/p' "$WORK/wg9.conf")"
laptop_down
server remove --yes
is_gone wg0
all_as_before "remove"

say "a routed prefix"
ip -n inet -6 route add 2001:db8:7::/56 via 2001:db8:1::5
server init --prefix6 2001:db8:7::/56
client laptop
forget_seen
laptop_up
pings laptop 198.51.100.2
pings laptop 2001:db8:3::2
expect "where the laptop's IPv4 comes from" 203.0.113.5 "$(seen v4)"
expect "where the laptop's IPv6 comes from" 2001:db8:7::2 "$(seen v6)"
no_ping web 2001:db8:7::2
laptop_down
server remove --yes
is_gone wg0
all_as_before "remove"

say "no IPv6"
server init --no-ipv6
client laptop
grep -qx "AllowedIPs = 0.0.0.0/0" "$WORK/wg9.conf" || fail "the laptop's file: $(grep -v Key "$WORK/wg9.conf")"
laptop_up
pings laptop 198.51.100.2
laptop_down
server remove --yes
is_gone wg0
all_as_before "remove"
