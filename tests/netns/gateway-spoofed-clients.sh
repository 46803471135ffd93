#!/usr/bin/env bash
# timeout: 120
# The gateway drops datagrams from outside the tunnel with a client's address, whatever the reverse path filter is: none
# reaches an accomplice, masqueraded or not, and none opens a connection that lets the accomplice in past `Inbound = replies`.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"
source "$(dirname "$0")/neighbour.bash"

need nft python3
gateway_hosts
ACCOMPLICE=(198.18.0.2 2001:db8:18::2)
ip -n inet addr add 2001:db8:18::2/128 dev lo nodad
# The neighbour sends from port 5000, the accomplice from port 6000.
count inet in left udp sport 5000
count c1 in entered iifname wg3 "udp sport { 5000, 6000 }"
quiet() { # WHAT
  sleep 0.2
  expect "$1: datagrams that left, and that came to the client" "0 0" "$(counted inet left) $(counted c1 entered)"
}
# Each neighbour of h1 forges sources: c1's to the accomplice, and c2's and the gateway's to c1. The accomplice answers to
# all addresses that it could have seen, unless `Inbound = all`.
CLIENTS=(10.9.0.2 fd09::2) OTHERS=("10.9.0.3 10.9.0.1" "fd09::3 fd09::1") UPLINK=(203.0.113.1 2001:db8:113::1)
spoof() { # WHAT [no-answers]
  local place family as to spoofed answers
  for place in "inet i0 h1 up0" "lan lan2 h1 lan1" "m m1 h1 e1"; do
    spoofed=() answers=()
    for family in 0 1; do
      spoofed+=(+ udp "from=${CLIENTS[family]}" "to=${ACCOMPLICE[family]}" sport=5000 dport=6000)
      for as in ${OTHERS[family]}; do spoofed+=(+ udp "from=$as" "to=${CLIENTS[family]}" sport=5000 dport=6000); done
      for to in "${CLIENTS[family]}" "${UPLINK[family]}"; do
        answers+=(+ udp "from=${ACCOMPLICE[family]}" "to=$to" sport=6000 dport=5000)
      done
    done
    # shellcheck disable=SC2086 # several words
    neighbour $place "${spoofed[@]:1}"
    [[ -n ${2:-} ]] || neighbour inet i0 h1 up0 "${answers[@]:1}"
    quiet "$1, from the link of ${place##* }"
  done
}
# The client's own datagrams pass, and their answers.
passes() { # WHAT
  local to
  for to in "${ACCOMPLICE[@]}"; do
    on c1 python3 -c '
import socket, sys
asked = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
asked.settimeout(10)
asked.sendto(b"x", (sys.argv[1], 7))
asked.recv(10)' "$to" || fail "$1: the client has no answer from $to"
  done
  say "$1: the client has its answers"
}
ip netns exec inet python3 -c '
import socket, threading
echo = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)]
echo[0].bind(("198.18.0.2", 7)), echo[1].bind(("2001:db8:18::2", 7))
def serve(made):
    while True: made.sendto(*made.recvfrom(100))
for made in echo: threading.Thread(target=serve, args=(made,)).start()' &
wait_for 5 "the accomplice" listens_udp inet 7

for masquerade in both off; do
  if [[ $masquerade == off ]]; then routes_back; else no_routes_back 2>/dev/null || true; fi
  for filter in 0 2; do
    on h1 sysctl -qw net.ipv4.conf.{all,default,up0,lan1,e1}.rp_filter=$filter
    gateway_file "#! Gateway = up0" "#! Masquerade = $masquerade"
    good linerate up wg1
    new_sessions
    passes "Masquerade = $masquerade, rp_filter $filter"
    spoof "Masquerade = $masquerade, rp_filter $filter"
    good linerate down wg1
    is_gone wg1
  done
done

say "on a host that forwards between all its networks, with everything that comes from outside let in"
forwarding h1
gateway_file "#! Gateway = up0" "#! Inbound = all"
good linerate up wg1
new_sessions
passes "Inbound = all"
spoof "Inbound = all" no-answers
