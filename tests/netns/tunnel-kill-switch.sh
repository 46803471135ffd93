#!/usr/bin/env bash
# timeout: 60
# KillSwitch: nothing leaves but through the tunnel, of the host's own and of what it forwards, with the daemon or without.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
address h2 lo 203.0.113.7/32 203.0.113.8/32 2001:db8:7::7/128
ip -n lan route add default via 192.168.77.1
ip -n h2 route add 192.168.77.0/24 via 192.0.2.1
forwarding h1
prepare() {
  ip -n h1 route add default via 192.0.2.2
  ip -n h1 -6 route add default via 2001:db8::2
}
# What is not to be seen on the cable; only the tunnel's own datagrams and what finds neighbours and addresses is.
count h2 in echoes iifname e2 icmp type echo-request
count h2 in echoes6 iifname e2 icmpv6 type echo-request
count h2 in datagrams iifname e2 udp dport 7777
count h2 in connections iifname e2 meta l4proto tcp
count h2 in dhcp iifname e2 udp sport 68 udp dport 67
leaks() { echo "$(counted h2 echoes) $(counted h2 echoes6) $(counted h2 datagrams) $(counted h2 connections)"; }
unanswered() { # HOST ADDRESS [PING OPTION...] : a ping in the background that must not be answered
  on "$1" ping -n -q -c 1 -W 1 "${@:3}" "$2" >/dev/null 2>&1 &
  waiting[$!]="a ping from $1 to ${*:2}"
}
try_all() { # everything that a host may send, to whomever
  local pid
  declare -A waiting=()
  unanswered h1 203.0.113.7
  unanswered h1 203.0.113.7 -I e1
  unanswered h1 192.0.2.2
  unanswered h1 2001:db8:7::7
  unanswered h1 2001:db8::2
  unanswered lan 203.0.113.7
  on h1 nc -z -w 1 203.0.113.7 80 || true
  on h1 bash -c 'echo x >/dev/udp/203.0.113.7/7777' 2>/dev/null || true
  on h1 bash -c 'echo x >/dev/udp/192.0.2.2/7777' 2>/dev/null || true
  for pid in "${!waiting[@]}"; do
    if wait "$pid"; then fail "${waiting[$pid]} was answered"; fi
  done
}
prepare
for who in wg-quick linerate; do
  for allowed in 0.0.0.0/0,::/0 10.9.0.2/32,203.0.113.8/32; do
    say "$who: allowed IPs $allowed"
    tunnel_file wg1 $allowed "#! KillSwitch = true"
    remember
    on h2 nft reset counters >/dev/null
    good $who up wg1
    pings h1 10.9.0.2
    pings h1 203.0.113.8
    no_ping h1 192.0.2.2
    echo discover | on h1 nc -u -w 1 -p 68 192.0.2.2 67 || true
    expect "requests for an address that left" 1 "$(counted h2 dhcp)"
    expect "packets that left outside the tunnel" "0 0 0 0" "$(leaks)"

    on h1 nft flush ruleset # a firewall that is started anew
    good linerate reload wg1
    pings h1 10.9.0.2
    no_ping h1 192.0.2.2
    expect "packets that left outside the tunnel after the reload" "0 0 0 0" "$(leaks)"

    kill -KILL "$(daemon_of wg1)"
    wait_for 5 "the daemon to end" no_daemon wg1
    wait_for 5 "its interface to go" no_link wg1
    try_all
    expect "what left without the daemon" "0 0 0 0" "$(leaks)"
    good $who down wg1
    is_gone wg1
    as_before "$who down"
    pings h1 203.0.113.7
    pings lan 203.0.113.7
  done

  say "$who: exceptions; the link to h2 has public addresses, which only the file can exclude"
  for line in "ExcludedIPs = 192.168.77.0/24, 2001:db8::/64" "ExcludeLAN = true"; do
    tunnel_file wg1 0.0.0.0/0,::/0 "#! KillSwitch = true" "#! $line"
    remember
    good $who up wg1
    pings h1 192.168.77.2
    if [[ $line == Exclude*LAN* ]]; then
      said "$who up" "ExcludeLAN: 2001:db8::/64 on e1 has public addresses.*ExcludedIPs = 2001:db8::/64"
      no_ping h1 2001:db8::2
    else
      pings h1 2001:db8::2
    fi
    good $who down wg1
    is_gone wg1
    as_before "$who down"
  done
done
