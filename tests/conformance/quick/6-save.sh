# Saving, compared by what the saved file means: the original writes it anew, ours changes what has changed.

save() { # TITLE SCRIPT
  same "save: $1" "quick up wg0; $2; saved; host"
}
tunnel 10.9.0.0/16 "Address = 10.0.0.2/24, fd00::2/64" "ListenPort = 77"
save "nothing has changed" 'quick save wg0'
tunnel 10.9.0.0/16 "ListenPort = 77" "Table = 123" "MTU = 1300" "PostUp = true a" "PreDown = true b" "PostDown = true c %%i"
save "what only wg-quick knows" 'quick save wg0'
tunnel 10.9.0.0/16 "ListenPort = 77" "Address = 10.0.0.2/24"
save "another address" 'ip address add 10.0.5.1/24 dev wg0; ip address del 10.0.0.2/24 dev wg0; quick save wg0'
tunnel 10.9.0.0/16 "ListenPort = 77" "MTU = 1300"
save "another MTU, where the file has one" 'ip link set mtu 1313 dev wg0; quick save wg0'
tunnel 10.9.0.0/16 "ListenPort = 77"
save "another MTU, where the file has none" 'ip link set mtu 1313 dev wg0; quick save wg0'
tunnel 10.9.0.0/16 "ListenPort = 77" "DNS = 10.0.0.1" "DNS = fd00::1"
save "name servers" 'quick save wg0'
tunnel 10.9.0.0/16 "ListenPort = 77"
save "another port, mark and endpoint" "wg set wg0 listen-port 78 fwmark 0x12 peer $PEER endpoint 192.0.2.9:9 persistent-keepalive 7; quick save wg0"
tunnel 10.9.0.0/16 "ListenPort = 77"
save "another key, and a preshared one" "wg set wg0 private-key <(echo $OTHER) peer $PEER preshared-key <(echo $KEY); quick save wg0"
tunnel "10.9.0.0/16, fd01::/48" "ListenPort = 77"
save "other allowed IPs" "wg set wg0 peer $PEER allowed-ips 10.9.0.0/16,10.10.0.0/16; quick save wg0"
tunnel 10.9.0.0/16 "ListenPort = 77"
save "a peer more" "wg set wg0 peer $OTHER allowed-ips 10.10.0.0/16 endpoint '[2001:db8::9]:9'; quick save wg0"
tunnel 10.9.0.0/16 "ListenPort = 77"
save "a peer less" "wg set wg0 peer $PEER remove; quick save wg0"
tunnel 10.9.0.0/16 "ListenPort = 77" "Address = 10.0.0.2/24"
save "the file stays for root" 'chmod 600 /etc/wireguard/wg0.conf; quick save wg0; see stat -c %a /etc/wireguard/wg0.conf'
tunnel 10.9.0.0/16
same "save: of a tunnel that is not up" 'quick save wg0'
for value in true TRUE; do
  tunnel 10.9.0.0/16 "ListenPort = 77" "Address = 10.0.0.2/24" "SaveConfig = $value" "PreDown = ip address add 10.0.6.1/24 dev %i"
  save "SaveConfig = $value, when the tunnel goes down" 'wg set wg0 listen-port 99; sed -i s/TRUE/true/ /etc/wireguard/wg0.conf; quick down wg0'
done
tunnel 10.9.0.0/16 "ListenPort = 77" "SaveConfig = false"
save "SaveConfig = false" 'wg set wg0 listen-port 99; quick down wg0'
tunnel 10.9.0.0/16 "ListenPort = 77" "SaveConfig = true"
same "save: SaveConfig, and up again" 'quick up wg0; wg set wg0 listen-port 99; quick down wg0; quick up wg0; see wg show wg0 listen-port; host'

# What the original loses.
cat >"$PLACE/lossless" <<END
# The way home
[Interface]
PrivateKey = $KEY # mine
ListenPort = 77
Address = 10.0.0.2/24,fd00::2/64
DNS = 10.0.0.1, example.org
PreUp = true # before
PostUp = true

### The gateway
[Peer]
# Name = gateway
PublicKey = $PEER
AllowedIPs = 10.9.0.0/16
Endpoint = gateway.invalid:51820
END
file wg0.conf <"$PLACE/lossless"
ours "save: comments, names, order and search domains stay" 'quick up wg0 2>/dev/null; wg set wg0 listen-port 99; quick save wg0; see cat /etc/wireguard/wg0.conf' <<END
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] true # before
err: [#] wg addconf wg0 FILE
err: [#] ip -4 address add 10.0.0.2/24 dev wg0
err: [#] ip -6 address add fd00::2/64 dev wg0
err: [#] ip link set mtu 1370 up dev wg0
err: [#] resolvconf -a wg0 -m 0 -x
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
err: [#] true
err: gateway.invalid:51820: no address yet; retrying in the background
code 0
$ wg-quick save wg0
err: [#] wg showconf wg0
code 0
$(sed s/77/99/ "$PLACE/lossless")
END
tunnel 10.9.0.0/16 "ListenPort = 77"
ours "save: a file that was changed meanwhile" 'quick up wg0; sed -i s/10.9/10.8/ /etc/wireguard/wg0.conf; wg set wg0 listen-port 99; quick save wg0; saved' <<END
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1370 up dev wg0
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
code 0
$ wg-quick save wg0
err: [#] wg showconf wg0
code 0
1 ListenPort = 99
1 PrivateKey = $KEY
2 AllowedIPs = 10.8.0.0/16
2 Endpoint = 198.51.100.1:51820
2 PublicKey = $PEER
END
