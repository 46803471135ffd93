# Functions that compare the hosts that clients reach before and after an import; sourced after import.bash:
#
#   lan l1 --- eth1 h1 eth0 --- r --- net
#                               |
#                           h2, h3       one client of the sample on each
#
# First the original wg-quick runs the tool's own file, with its commands and the real iptables; then linerate runs the
# imported file. Packets show which hosts each client reaches; both results must be equal.

need iptables jq nc
has_original || skip "wg-quick or $ENGINE is not installed"

matrix_hosts() {
  import_hosts
  host h3 lan
  cable h3 e3 r r4
  cable lan l1 h1 eth1
  address h3 e3 192.0.3.2/24 2001:db8:3::2/64
  address r r4 192.0.3.1/24 2001:db8:3::1/64
  address lan l1 172.20.77.9/24 fd77::9/64
  address h1 eth1 172.20.77.1/24 fd77::1/64
  ip -n h3 route add default via 192.0.3.1
  # IPv6 packets outside of the tunnel reach no host.
  ip -n h2 -6 route del default
  ip -n lan route add default via 172.20.77.1
  ip -n lan -6 route add default via fd77::1
  # The server behind the forwarded port.
  at h2 nc -lk 8080 >/dev/null 2>&1 &
}

# Sets up the host as the tool leaves it, and starts the services that the tool starts at boot.
tool_starts() { # SAMPLE TUNNEL
  [[ ! -e $SAMPLES/$1/host ]] || cp -a "$SAMPLES/$1/host/." /
  # Forwarding: set in a host's own files, by a container's runtime, or by hand, as panels tell their users.
  at h1 sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
  unit ExecStart
  [[ ! -e /etc/iptables/rules.v4 ]] || at h1 iptables-restore /etc/iptables/rules.v4
  [[ ! -e /etc/iptables/rules.v6 ]] || at h1 ip6tables-restore /etc/iptables/rules.v6
  good original up "$2"
}
tool_goes() { # TUNNEL
  good original down "$1"
  is_gone "$1"
  rm "/etc/wireguard/$1.conf"
  at h1 sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0
}
unit() { # ExecStart|ExecStop : of the tool's unit for NAT
  [[ ! -e /etc/systemd/system/wg-iptables.service ]] ||
    sed -n "s/^$1=//p" /etc/systemd/system/wg-iptables.service | at h1 bash -e
}
# Removes rules outside of the tool's file with the commands that the import asks for.
nat_goes() { # SAMPLE
  if [[ -e /etc/systemd/system/wg-iptables.service ]]; then
    refused_import "systemctl disable --now wg-iptables.service" "$WORK/$1"
    unit ExecStop
    rm -f /etc/systemd/system/wg-iptables.service /etc/rc.local
  elif [[ -e /etc/iptables ]]; then
    refused_import "iptables -t nat -D POSTROUTING" "$WORK/$1"
    sed -n 's/^ *\(ip6*tables -t nat -D .*\)/\1/p' "$WORK/said" | sort -u | at h1 bash -e
    rm -r /etc/iptables
  fi
}
all_goes() { # TUNNEL
  good linerate down "$1"
  is_gone "$1"
  rm -rf /etc/wireguard/* /var/lib/* /etc/sysctl.d/*wireguard* /etc/sysctl.d/*pivpn* "$WORK/old-files"
  local program
  for program in iptables ip6tables; do at h1 $program -F && at h1 $program -t nat -F && at h1 $program -t mangle -F; done
}

clients_start() { # FILE-OF-h2 FILE-OF-h3 : without DNS, because the matrix resolves no names
  local number=2 file
  for file; do
    (umask 077 && sed '/^DNS/d' "$file" >"/etc/wireguard/old$number.conf")
    at h$number timeout 60 "$LINERATE" wg-quick up old$number >"$WORK/said" 2>&1 || fail "$file: $(cat "$WORK/said")"
    number=$((number + 1))
  done
}
clients_end() {
  local number
  for number in 2 3; do
    at h$number timeout 60 "$LINERATE" wg-quick down old$number >"$WORK/said" 2>&1 || fail "old$number: $(cat "$WORK/said")"
    rm /etc/wireguard/old$number.conf
  done
}

# Prints the first address of a family in a tunnel's file, without its prefix length.
in_tunnel() { # 4|6 FILE
  sed -n 's/^Address *= *//p' "$2" | tr -s ', ' '\n' | sed 's,/.*,,; /^fe80/d' |
    if [[ $1 == 4 ]]; then grep -v : | head -n 1; else grep : | head -n 1; fi || true
}
reaches() { # KEY HOST ADDRESS
  [[ -z $3 ]] || ! at "$2" ping -q -c 1 -i 0.3 -w 3 "$3" >/dev/null 2>&1 || echo "$1" >>"$WORK/reached"
}
# Tests whether each client reaches the server, the other client, the LAN and the internet, over IPv4 and IPv6; which hosts
# reach the port that is forwarded to the first client; and whether the LAN reaches the clients.
matrix() { # SERVER-FILE FILE-OF-h2 FILE-OF-h3
  local server=$1 from own other to pids=()
  : >"$WORK/reached"
  for from in "h2 $2 $3" "h3 $3 $2"; do
    read -r from own other <<<"$from"
    reaches "$from server 4" "$from" "$(in_tunnel 4 "$server")" & pids+=($!)
    reaches "$from server 6" "$from" "$(in_tunnel 6 "$server")" & pids+=($!)
    reaches "$from other 4" "$from" "$(in_tunnel 4 "$other")" & pids+=($!)
    reaches "$from other 6" "$from" "$(in_tunnel 6 "$other")" & pids+=($!)
    reaches "$from lan 4" "$from" 172.20.77.9 & pids+=($!)
    reaches "$from lan 6" "$from" fd77::9 & pids+=($!)
    reaches "$from internet 4" "$from" 203.0.113.9 & pids+=($!)
    reaches "$from internet 6" "$from" 2001:db8:9::9 & pids+=($!)
    reaches "lan $from 4" lan "$(in_tunnel 4 "$own")" & pids+=($!)
    reaches "lan $from 6" lan "$(in_tunnel 6 "$own")" & pids+=($!)
  done
  wait "${pids[@]}"
  if at net nc -z -w 2 198.51.100.7 8080 2>/dev/null; then echo "net port 4" >>"$WORK/reached"; fi
  for from in "h2 server" "h2 other" "h2 lan" "h2 internet" "h3 server" "h3 other" "h3 lan" "h3 internet" "net port" "lan h2" "lan h3"; do
    to=$(sed -n "s/^$from //p" "$WORK/reached" | sort | tr -d '\n')
    printf '%s:%s ' "$from" "${to:-no}"
  done
}
# A busy machine may delay a packet: a host counts as not reached only after a few attempts.
# Without the LAN in EXPECTED, its connections to clients are not compared.
expect_matrix() { # WHAT EXPECTED SERVER-FILE FILE-OF-h2 FILE-OF-h3
  local seen
  for _ in 1 2 3 4; do
    seen=$(matrix "${@:3}")
    [[ $2 == *"lan h2:"* ]] || seen=${seen%lan h2:*}
    [[ $seen != "$2 " ]] || break
  done
  expect "$1" "$2 " "$seen"
}

# A gateway lets no new connections into the tunnel unless the file says `Inbound = all`. If the LAN reached clients before, the
# import must name that setting, and the setting must restore the connections.
expect_matrix_after() { # WHAT EXPECTED SERVER-FILE FILE-OF-h2 FILE-OF-h3
  local file=/etc/wireguard/${3##*/}
  if grep -q '^#! Inbound = all$' "$file" || [[ $2 == *"lan h2:no lan h3:no" ]]; then
    expect_matrix "$@"
    return
  fi
  grep -q 'new connections from outside .* only replies .*Inbound = all' "$WORK/of-import" ||
    fail "$1: the import does not say that the LAN no longer reaches clients: $(tr '\n' ' ' <"$WORK/of-import")"
  expect_matrix "$1" "${2%lan h2:*}lan h2:no lan h3:no" "${@:3}"
  sed -i 's/^\[Interface\]$/&\n#! Inbound = all/' "$file"
  good linerate reload "$(basename "$file" .conf)"
  expect_matrix "$1, with Inbound = all" "${@:2}"
}

# Checks that clients reach the same hosts before and after the import. FAMILIES is 4 or 46. Without EXPECTED, all clients
# must reach all hosts, the LAN all clients, and no host the port.
same_matrix() { # SAMPLE NUMBER-OF-CLIENTS FAMILIES FILE-OF-h2 FILE-OF-h3 [EXPECTED]
  local sample=$1 count=$2 v=$3 folder=$SAMPLES/$1 conf tunnel expected files
  conf=$(find "$folder" -name wg0.conf -o -name wghub.conf)
  tunnel=$(basename "$conf" .conf)
  files=("$folder/$4" "$folder/$5")
  expected=${6:-"h2 server:$v h2 other:$v h2 lan:$v h2 internet:$v h3 server:$v h3 other:$v h3 lan:$v h3 internet:$v net port:no \
lan h2:$v lan h3:$v"}
  # The panels' templates have settings without a value, which make wg-quick fail. The panels never run it on such files.
  (umask 077 && sed -E '/^[A-Za-z]+ *= *$/d' "$conf" >"/etc/wireguard/$tunnel.conf")
  tool_starts "$sample" "$tunnel"
  clients_start "${files[@]}"
  expect_matrix "$sample, before" "$expected" "$conf" "${files[@]}"
  clients_end
  tool_goes "$tunnel"
  sample "$sample"
  nat_goes "$sample"
  import "$WORK/$sample" --endpoint 198.51.100.7
  mv "$WORK/said" "$WORK/of-import"
  good linerate up "$tunnel"
  expect "$sample, clients" "$count" "$(at h1 "$LINERATE" client list --json | jq length)"
  clients_start "${files[@]}"
  expect_matrix_after "$sample, after" "$expected" "$conf" "${files[@]}"
  clients_end
  all_goes "$tunnel"
}
