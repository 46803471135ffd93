# Daemons at work: wireguard-go with the reference and linerated with ours make the same tunnel. wireguard-go lists its
# peers in any order, so lines are sorted, and those of a file have their peer's key and not the number of its section.

DAEMONS='[[ $WHO == reference ]] && ENGINE=wireguard-go || ENGINE=$LINERATED
  state() { "$PLACE/reference/bin/wg" show wg0 dump | cut -f 1-4,8 | sort >>"$transcript"; }
  sections() {
    awk "function flush() { for (i in lines) print key, lines[i]; delete lines; key = 0 }
      /^\\[/ { flush() } /=/ { lines[NR] = \$0 } /^PublicKey/ { key = \$3 } END { flush() }"
  }'
real() { # TITLE [SCRIPT]
  if ! type -P wireguard-go >/dev/null || [[ ! -x $LINERATED ]]; then
    skipped=$((skipped + 1)) && echo "skip quick/daemons: $1 - no wireguard-go, or no linerated"
    rm -rf "$CASES/next"
    return
  fi
  BEFORE=$DAEMONS
  "${WORD:-same}" "daemons: $1" "${2:-quick up wg0; state; host; quick down wg0; host}"
}
tunnel "10.9.0.0/16, fd01::/48" "Address = 10.0.0.2/24, fd00::2/64" "ListenPort = 51821" "MTU = 1390"
real "a tunnel"
# Ours says where it is, and before it begins.
tunnel 10.7.1.1/16 "Address = 10.0.0.2/24" "ListenPort = 51821"
WORD=alike real "allowed IPs with host bits"
tunnel "0.0.0.0/0, ::/0" "Address = 10.0.0.2/24, fd00::2/64" "ListenPort = 51821" "DNS = 10.0.0.1"
real "a full tunnel"
file wg0.conf <<END
[Interface]
PrivateKey = $KEY
ListenPort = 51821
FwMark = 0x77
Address = 10.0.0.2/24
[Peer]
PublicKey = $PEER
PresharedKey = $KEY
AllowedIPs = 10.9.0.0/16, fd01::/48
Endpoint = [2001:db8:1::7]:5
PersistentKeepalive = 25
[Peer]
PublicKey = $OTHER
AllowedIPs = 10.10.0.0/16, 10.9.1.0/24
Endpoint = 198.51.100.9:7
END
real "two peers, with all their keys" 'quick up wg0; state; quick down wg0; host'
tunnel 10.9.0.0/16 "Address = 10.0.0.2/24" "ListenPort = 51821" "PostUp = wg set %i peer $OTHER allowed-ips 10.10.0.0/16 endpoint 198.51.100.9:7" "SaveConfig = true"
real "saved when it goes down, and up again" 'quick up wg0; quick down wg0; saved; quick up wg0; state; host'
tunnel 10.9.0.0/16 "Address = 10.0.0.2/24" "ListenPort = 51821" "PostUp = wg show %i; true"
real "nothing of it stays" 'quick up wg0; quick down wg0; see ls /run/wireguard; host'
tunnel 10.9.0.0/16 "Address = 10.0.0.2/24" "ListenPort = 51821"
real "a reload by wg syncconf" 'quick up wg0; sed -i "s/10.9.0.0/10.11.0.0/; s/51821/51822/" /etc/wireguard/wg0.conf; wg syncconf wg0 <(wg-quick strip wg0); state; host'
