#!/usr/bin/env bash
# Congestion marks pass through the tunnel: into the outer header on the way in, into the inner one on the way out.
source "$(dirname "$0")/lib.sh"
need iperf3

two_hosts
tunnel v4
pings h1 10.9.0.2

seen() { # NAME HOST in|out MATCH... -- PING OPTION... : pings that are seen to match
  local name=$1 at=$2 way=$3 match=()
  shift 3
  while [[ $1 != -- ]]; do match+=("$1") && shift; done
  shift
  count "$at" "$way" "$name" "${match[@]}"
  on h1 ping -n -q -c 3 -i 0.05 -W 2 "$@" >/dev/null || fail "no answer to ping $*"
}

say "inner ECT becomes outer ECT; inner CE becomes outer ECT(0); DSCP stays inside"
seen ect0 h2 in udp dport 50002 @nh,8,8 0x02 -- -Q 0xba 10.9.0.2
expect "outer packets with TOS 0x02 for inner ones with TOS 0xba" 3 "$(counted h2 ect0)"
seen ect1 h2 in udp dport 50002 @nh,8,8 0x01 -- -Q 0x01 10.9.0.2
expect "outer packets with ECT(1) for inner ones with ECT(1)" 3 "$(counted h2 ect1)"
seen ce h2 in udp dport 50002 @nh,8,8 0x02 -- -Q 0x03 10.9.0.2
expect "outer packets with ECT(0) for inner ones with CE" 3 "$(counted h2 ce)"
seen plain h2 in udp dport 50002 @nh,8,8 0x00 -- -Q 0xb8 10.9.0.2
expect "outer packets with TOS 0 for inner ones with TOS 0xb8" 3 "$(counted h2 plain)"
seen ect6 h2 in udp dport 50002 @nh,8,8 0x02 -- -Q 0x02 fd09::2
expect "outer packets with ECT(0) for inner IPv6 with ECT(0)" 3 "$(counted h2 ect6)"

say "a router on the way marks CE, and the inner packet has it"
rule h1 out udp dport 50002 ip ecn ect0 ip ecn set ce
seen marked h2 in iifname wg2 ip ecn ce -- -Q 0x02 10.9.0.2
expect "inner packets with CE" 3 "$(counted h2 marked)"
seen marked6 h2 in iifname wg2 ip6 ecn ce -- -Q 0x02 fd09::2
expect "inner IPv6 packets with CE" 3 "$(counted h2 marked6)"
seen valid h2 in iifname wg2 ip ecn ce ip dscp 0x2e -- -Q 0xba 10.9.0.2
expect "inner packets with CE that kept their DSCP" 3 "$(counted h2 valid)"
# (That ping answers says that the inner IPv4 checksum was renewed with the mark.)

say "TCP with ECN feels the marks and goes on"
on h1 sysctl -qw net.ipv4.tcp_ecn=1
on h2 sysctl -qw net.ipv4.tcp_ecn=1
unblock h1
rule h1 out udp dport 50002 ip ecn ect0 numgen random mod 100 '<' 2 ip ecn set ce
count h2 in felt iifname wg2 ip ecn ce
iperf h1 h2 10.9.0.2
expect_at_least "TCP segments that arrived with CE" 1 "$(counted h2 felt)"

say "the same over IPv6 outside"
stop_daemon wg1 && stop_daemon wg2
unblock h1
tunnel v6
pings h1 10.9.0.2
seen outer6 h2 in udp dport 50002 ip6 ecn ect0 ip6 dscp 0 -- -Q 0xba 10.9.0.2
expect "outer IPv6 packets with ECT(0)" 3 "$(counted h2 outer6)"
rule h1 out udp dport 50002 ip6 ecn ect0 ip6 ecn set ce
seen marked64 h2 in iifname wg2 ip ecn ce -- -Q 0x02 10.9.0.2
expect "inner packets with CE" 3 "$(counted h2 marked64)"
