#!/usr/bin/env bash
# timeout: 120
# Commands of a server's file that an import takes over: keys from files as wg-quick's manual shows it, and rules that let clients out by one interface.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"
source "$(dirname "$0")/import-matrix.bash"

matrix_hosts
for client in laptop anns-phone; do
  sed 's|^AllowedIPs = .*|AllowedIPs = 0.0.0.0/0, ::/0|; s|office.example.com|198.51.100.7|' "$SAMPLES/wg-quick/clients/$client.conf" >"$WORK/$client.conf"
done
value() { sed -n "s/^$1 = //p" "$SAMPLES/wg-quick/$2" | head -n 1; } # NAME FILE
mkdir -m 700 /etc/wireguard/keys
value PrivateKey wg0.conf >/etc/wireguard/keys/wg0.key
value PresharedKey clients/laptop.conf >/etc/wireguard/keys/laptop.psk

# Writes the tool's file with these commands, and with its keys in files.
old_server() { # HOOK...
  {
    printf '%s\n' "[Interface]" "Address = 10.20.0.1/24, fd20:1::1/64" "ListenPort = 51821"
    echo "PostUp = wg set %i private-key /etc/wireguard/keys/%i.key"
    echo "PostUp = wg set %i peer $(value PublicKey wg0.conf) preshared-key /etc/wireguard/keys/laptop.psk"
    printf 'PostUp = %s\n' "$@"
    sed -n '/^\[Peer\]/,/^$/{/PresharedKey/d;p}' "$SAMPLES/wg-quick/wg0.conf"
  } >/etc/wireguard/wg0.conf
}
no_rules() {
  local program
  for program in iptables ip6tables; do at h1 $program -F && at h1 $program -t nat -F; done
}
measured() { # WHAT EXPECTED : of the server that is up
  clients_start "$WORK/laptop.conf" "$WORK/anns-phone.conf"
  expect_matrix "$1" "$2" /etc/wireguard/wg0.conf "$WORK/laptop.conf" "$WORK/anns-phone.conf"
  clients_end
}
same_before_and_after() { # WHAT EXPECTED HOOK...
  old_server "${@:3}"
  at h1 sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
  good original up wg0
  measured "$1, before" "$2"
  good original down wg0
  is_gone wg0
  no_rules
  at h1 sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0
  import /etc/wireguard/wg0.conf "$WORK"/{laptop,anns-phone}.conf
  expect "commands that are left" 0 "$(grep -c '^Post' /etc/wireguard/wg0.conf || true)"
  expect "keys" "#! PrivateKeyFile = /etc/wireguard/keys/wg0.key" "$(grep PrivateKey /etc/wireguard/wg0.conf)"
  good linerate up wg0 --fix-firewall
  measured "$1, after" "$2"
  good linerate client add new-one
  good linerate down wg0
  is_gone wg0
  good linerate server remove wg0 --yes
}

all="h2 server:46 h2 other:46 h2 lan:46 h2 internet:46 h3 server:46 h3 other:46 h3 lan:46 h3 internet:46 net port:no"
same_before_and_after "nothing is closed" "$all" \
  "iptables -A FORWARD -i wg0 -j ACCEPT 2>/dev/null || true; iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE" \
  "ip6tables -I DOCKER-USER -i %i -j ACCEPT 2>/dev/null || ip6tables -A FORWARD -i %i -j ACCEPT" \
  "ip6tables -t nat -A POSTROUTING -o eth0 -j MASQUERADE"

# Forwarding is closed, and rules open it towards the LAN.
for program in iptables ip6tables; do at h1 $program -P FORWARD DROP; done
lan="h2 server:46 h2 other:no h2 lan:46 h2 internet:no h3 server:46 h3 other:no h3 lan:46 h3 internet:no net port:no"
hooks=()
for program in iptables ip6tables; do
  hooks+=("$program -A FORWARD -i wg0 -o eth1 -j ACCEPT" "$program -A FORWARD -i eth1 -o wg0 -m state --state RELATED,ESTABLISHED -j ACCEPT")
  hooks+=("$program -t nat -A POSTROUTING -o eth0 -j MASQUERADE")
done
same_before_and_after "only the LAN is open" "$lan" "${hooks[@]}"
for program in iptables ip6tables; do at h1 $program -P FORWARD ACCEPT; done

# A key file that cannot be read, and a key that a program prints, are refused, and no file is changed.
old_server true
old_files >"$WORK/before"
mv /etc/wireguard/keys/wg0.key "$WORK/wg0.key-away"
refused_import "/etc/wireguard/keys/wg0.key, which cannot be read" /etc/wireguard/wg0.conf --endpoint vpn.example.com
mv "$WORK/wg0.key-away" /etc/wireguard/keys/wg0.key
sed -i 's,private-key .*,private-key <(pass wg0),' /etc/wireguard/wg0.conf
refused_import "replace that command by .PrivateKey = KEY" /etc/wireguard/wg0.conf --endpoint vpn.example.com
sed -i 's,private-key .*,private-key /etc/hostname,' /etc/wireguard/wg0.conf
refused_import "/etc/hostname: this is not a key" /etc/wireguard/wg0.conf --endpoint vpn.example.com
