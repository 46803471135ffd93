#!/usr/bin/env bash
# timeout: 240
# An import keeps rules that let only some clients through: each client reaches the same hosts before and after. A client can be added if the server's address has no prefix length.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
need iptables
mkdir "$WORK/clients"
for client in laptop anns-phone; do
  sed 's,^AllowedIPs = .*,AllowedIPs = 0.0.0.0/0,' "$SAMPLES/wg-quick/clients/$client.conf" >"$WORK/clients/$client.conf"
done

old_server() { # ADDRESS HOOK... : the old tool's file
  {
    echo "[Interface]"
    sed -n '/^PrivateKey\|^ListenPort/p' "$SAMPLES/wg-quick/wg0.conf"
    printf '%s\n' "Address = $1" "PreUp = sysctl -w net.ipv4.ip_forward=1"
    printf 'PostUp = %s\n' "${@:2}"
    sed -n '/^\[Peer\]/,/^$/p' "$SAMPLES/wg-quick/wg0.conf"
  } >/etc/wireguard/wg0.conf
}

reached() { # ADDRESS : yes or no
  if at h2 ping -q -c 4 -i 0.3 -W 1 "$1" >/dev/null 2>&1; then echo yes; else echo no; fi
}
matrix() { # each client to the server and the internet
  local client
  for client in laptop anns-phone; do
    client_up "$WORK/clients/$client.conf"
    echo "$client $(reached 10.20.0.1) $(reached 203.0.113.9)"
    client_down
  done
}
no_rules() { at h1 iptables -F && at h1 iptables -t nat -F; }

same_rights() { # WHAT EXPECTED ADDRESS HOOK...
  old_server "${@:3}"
  at h1 "$LINERATE" wg-quick up wg0 >"$WORK/said" 2>&1 || fail "the old server: $(cat "$WORK/said")"
  expect "$1, before" "$2" "$(matrix)"
  at h1 "$LINERATE" wg-quick down wg0 >"$WORK/said" 2>&1 || fail "the old server: $(cat "$WORK/said")"
  no_rules
  import /etc/wireguard/wg0.conf "$WORK/clients"
  good linerate up wg0
  expect "$1, after" "$2" "$(matrix)"
}
server_ends() {
  good linerate down wg0
  good linerate server remove wg0 --yes
  no_rules
}

masquerade="iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE"
one=$'laptop yes yes\nanns-phone yes no'
same_rights "one client before a REJECT" "$one" 10.20.0.1/24 "$masquerade" \
  "iptables -A FORWARD -i wg0 -s 10.20.0.2/32 -j ACCEPT" "iptables -A FORWARD -i wg0 -j REJECT"
server_ends
same_rights "one client without a length, in one line" "$one" 10.20.0.1/24 \
  "$masquerade; iptables -A FORWARD -i %i -s 10.20.0.2 -j ACCEPT; iptables -A FORWARD -i %i -j DROP"
server_ends
same_rights "all but one" "$one" 10.20.0.1/24 "$masquerade" "iptables -A FORWARD -i wg0 ! -s 10.20.0.2 -j REJECT" \
  "iptables -A FORWARD -i wg0 -j ACCEPT"
server_ends
same_rights "NAT for one client" "$one" 10.20.0.1/24 "iptables -A FORWARD -i wg0 -j ACCEPT" \
  "iptables -t nat -A POSTROUTING -s 10.20.0.2/32 -o eth0 -j MASQUERADE"
server_ends
same_rights "all clients" $'laptop yes yes\nanns-phone yes yes' 10.20.0.1 "$masquerade" \
  "iptables -A FORWARD -i wg0 -j ACCEPT" "iptables -A FORWARD -o wg0 -j ACCEPT"
expect "rules that are kept" 0 "$(grep -c iptables /etc/wireguard/wg0.conf || true)"

good linerate client add new-one --keep-key
at h1 "$LINERATE" client export new-one >"$WORK/new-one.conf"
sed -i 's,^Endpoint = .*,Endpoint = 198.51.100.7:51821,' "$WORK/new-one.conf"
client_up "$WORK/new-one.conf"
expect "the new client reaches the server and the internet" "yes yes" "$(reached 10.20.0.1) $(reached 203.0.113.9)"
client_down
rm /etc/wireguard/old.conf # the client of h2
good linerate server set --pool 10.20.0.0/16
server_ends
