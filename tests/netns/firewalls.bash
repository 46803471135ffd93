# Words for scenarios about firewalls of others on h1, sourced after gateway.bash. Each *_rules makes one that drops what
# a gateway needs.

extra_firewalls() { :; } # what else a tool keeps

# All rules of h1 but ours, without counters.
firewalls() {
  on h1 nft -s list ruleset 2>/dev/null | awk '/^table .* linerate/ { skip = 1 } !skip { print } /^}/ { skip = 0 }'
  ! legacy_used || on h1 iptables-legacy -S
  extra_firewalls
}
legacy_used() { type -P iptables-legacy >/dev/null && on h1 grep -q filter /proc/net/ip_tables_names 2>/dev/null; }
firewalls_as_before() { # WHEN
  firewalls >"$WORK/firewalls-after"
  diff "$WORK/firewalls" "$WORK/firewalls-after" >"$WORK/difference" || fail "$1: foreign rules are not as they were: $(tr '\n' ' ' <"$WORK/difference")"
  say "$1: foreign rules are as they were"
}
forget_firewalls() {
  on h1 nft flush ruleset
  if legacy_used; then
    on h1 iptables-legacy -P FORWARD ACCEPT
    on h1 iptables-legacy -F
    on h1 iptables-legacy -X
  fi
}

# The commands that the warnings of the last turn name, one a line, as they are typed.
named_commands() { grep -oE '`[^`]+`' "$WORK/said" | tr -d '`' | grep -E '^(iptables|ip6tables|nft|ufw|firewall-cmd)' || true; }
type_in() { # WHAT : types what was named
  named_commands >"$WORK/commands"
  [[ -s $WORK/commands ]] || fail "$1: no command was named: $(tr '\n' ' ' <"$WORK/said")"
  while read -r line; do
    say "$1: $line"
    on h1 bash -c "$line" </dev/null >/dev/null || fail "$1: that failed: $line"
  done <"$WORK/commands"
}

# A connection from a client to inet, as firewalls let some echo requests pass by themselves.
connects() { # HOST ADDRESS
  ip netns exec inet nc -l "$2" 7171 >"$WORK/connected" </dev/null &
  local server=$!
  wait_for 5 "nc to listen" listens inet 7171
  echo hello | on "$1" timeout 3 nc -N -w 2 "$2" 7171 >/dev/null 2>&1 || true
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  [[ $(cat "$WORK/connected") == hello ]]
}
reaches() { # HOST ADDRESS : a new session may take a handshake that is lost, and made again after 5 s
  local _
  for _ in 1 2 3 4; do
    if connects "$@"; then
      say "$1 reaches $2"
      return
    fi
  done
  fail "$1 does not reach $2"
}
reaches_not() { ! connects "$@" || fail "$1 reaches $2" && say "$1 does not reach $2"; } # HOST ADDRESS

stopped_then_mended() { # WHAT : without the option it is closed, and what is named opens it
  good linerate up wg1
  new_sessions
  reaches_not c1 198.18.0.1
  type_in "$1"
  new_sessions
  reaches c1 198.18.0.1
  [[ -n ${IPV4_ONLY:-} ]] || reaches c1 2001:db8:18::1
  reaches c2 198.18.0.1
  good linerate reload wg1
  good linerate down wg1
  is_gone wg1
  good linerate up wg1
  [[ $(named_commands) == "" ]] || fail "$1: a command is named although the way is made: $(named_commands)"
  good linerate down wg1
  is_gone wg1
}

fixed() { # WHAT : with the option it is open, and closed after `down`, and all is as before, also after kills
  local begun length part
  good linerate plan --fix-firewall wg1
  grep -q 'lets .* pass' "$WORK/said" || fail "$1: the plan does not say what is opened"
  firewalls_as_before "$1: a plan"
  begun=${EPOCHREALTIME/./}
  good linerate up --fix-firewall wg1
  length=$((${EPOCHREALTIME/./} - begun))
  [[ $(named_commands) == "" ]] || fail "$1: a command is named with the option: $(named_commands)"
  new_sessions
  reaches c1 198.18.0.1
  [[ -n ${IPV4_ONLY:-} ]] || reaches c1 2001:db8:18::1
  reaches c2 198.18.0.1
  pings c1 10.9.0.3
  good linerate reload wg1
  said "a reload" "nothing has changed"
  reaches c1 198.18.0.1
  good linerate down wg1
  is_gone wg1
  firewalls_as_before "$1: down"
  for part in ${PARTS:-1 3 5 7 8 9}; do
    at h1 timeout -s KILL "$(awk "BEGIN { printf \"%.4f\", $length * $part / 10 / 1000000 }")" "$LINERATE" up --fix-firewall wg1 >"$WORK/said" 2>&1 || true
    turn linerate down wg1
    is_gone wg1
    firewalls_as_before "$1: up killed after $part of 10 parts, then down"
  done
  all_as_before "$1: killed, then down"

  say "$1: another port and another interface"
  good linerate up --fix-firewall wg1
  gateway_file "#! Gateway = up0, lan1" "#! Masquerade = both"
  sed -i 's/^ListenPort.*/ListenPort = 51833/' /etc/wireguard/wg1.conf
  good linerate reload wg1
  on c1 wg set wg3 peer "$(public h1)" endpoint 192.0.2.1:51833
  new_sessions
  reaches c1 198.18.0.1
  pings c1 192.168.77.2
  gateway_file "#! Gateway = up0" "#! Masquerade = both"
  begun=${EPOCHREALTIME/./}
  good linerate reload wg1
  length=$((${EPOCHREALTIME/./} - begun))
  for part in ${RELOADS:-2 5 8}; do
    gateway_file "#! Gateway = up0, lan1" "#! Masquerade = both"
    ((part != 5)) || gateway_file "#! Gateway = up0" "#! Masquerade = both"
    at h1 timeout -s KILL "$(awk "BEGIN { printf \"%.4f\", $length * $part / 10 / 1000000 }")" "$LINERATE" reload wg1 >"$WORK/said" 2>&1 || true
  done
  good linerate down wg1
  is_gone wg1
  firewalls_as_before "$1: reloads killed, then down"
  on c1 wg set wg3 peer "$(public h1)" endpoint 192.0.2.1:51820
  gateway_file "#! Gateway = up0" "#! Masquerade = both"
}

# As Docker 28 has it with its own network, and the policy that it sets when it switches forwarding on: moby/moby,
# integration/network/bridge/iptablesdoc/generated/new-daemon.md, and libnetwork/drivers/bridge/setup_ip_forwarding.go.
docker_rules() { docker_by iptables ip6tables; }
docker_legacy() { docker_by iptables-legacy; }
docker_by() { # IPTABLES...
  local ipt
  for ipt; do
    on h1 bash -e -s "$ipt" <<'SH'
ipt=$1
for chain in DOCKER DOCKER-BRIDGE DOCKER-CT DOCKER-FORWARD DOCKER-INTERNAL DOCKER-USER; do $ipt -N $chain; done
$ipt -P FORWARD DROP
$ipt -A FORWARD -j DOCKER-USER
$ipt -A FORWARD -j DOCKER-FORWARD
$ipt -A DOCKER ! -i docker0 -o docker0 -j DROP
$ipt -A DOCKER-BRIDGE -o docker0 -j DOCKER
$ipt -A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
$ipt -A DOCKER-FORWARD -j DOCKER-CT
$ipt -A DOCKER-FORWARD -j DOCKER-INTERNAL
$ipt -A DOCKER-FORWARD -j DOCKER-BRIDGE
$ipt -A DOCKER-FORWARD -i docker0 -j ACCEPT
SH
  done
}

site_rules() {
  on h1 nft -f - <<'NFT'
table inet site {
  chain input { type filter hook input priority filter; policy drop;
    ct state established,related accept
    iifname "lo" accept
    meta l4proto { icmp, ipv6-icmp } accept
    tcp dport 22 accept
  }
  chain forward { type filter hook forward priority filter; policy drop; }
}
NFT
}

# Policies accept, and the last rules do not.
last_drop_rules() {
  on h1 nft -f - <<'NFT'
table ip filter_of_somebody {
  chain inbound { type filter hook input priority filter; policy accept;
    ct state vmap { established : accept, related : accept, invalid : drop }
    iif "lo" accept
    ip protocol icmp accept
    counter drop
  }
  chain through { type filter hook forward priority filter; policy accept;
    ct state { established, related } accept
    iifname "docker0" accept
    goto rest
  }
  chain rest { limit rate 1/minute log prefix "x "; reject; }
}
table ip6 filter_of_somebody {
  chain through { type filter hook forward priority filter; policy accept;
    ct state { established, related } accept
    counter drop
  }
}
NFT
}

map_rules() {
  on h1 nft -f - <<'NFT'
table inet site {
  chain forward { type filter hook forward priority -5; policy drop;
    ct state vmap { established : accept, related : accept, invalid : drop }
    iifname { "lan1", "e1" } oifname "up0" accept
    jump guests
  }
  chain guests { iifname "guest*" accept; udp dport { 53, 123 } accept; }
}
NFT
}
