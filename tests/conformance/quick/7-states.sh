# What is there already, and what has gone.

tunnel 10.9.0.0/16 "Address = 10.0.0.2/24"
same "up: it is up already" 'quick up wg0; quick up wg0; host'
tunnel 10.9.0.0/16
same "up: a link of that name" 'ip link add wg0 type veth peer name other; quick up wg0; quick down wg0; quick save wg0; host'
tunnel 10.9.0.0/16
same "down: it is not up" 'quick down wg0; host'
tunnel 10.9.0.0/16
same "down: twice" 'quick up wg0; quick down wg0; quick down wg0; host'
tunnel 10.9.0.0/16 "Address = 10.0.0.2/24"
same "up: again and again" 'for i in 1 2 3; do quick up wg0; quick down wg0; done; host'
tunnel 10.9.0.0/16 "Address = 10.0.0.2/24"
same "down: the link has gone" 'quick up wg0; ip link delete wg0; gone wg0; quick up wg0; quick down wg0; host'
tunnel "0.0.0.0/0, ::/0" "Address = 10.0.0.2/24" "DNS = 10.0.0.1"
# Since 2025 a value that is there is not set again.
alike "up: a full tunnel again" 'quick up wg0; quick down wg0; quick up wg0; quick down wg0; host'
tunnel 0.0.0.0/0 "Address = 10.0.0.2/24"
alike "down: what wg-quick of the original brought up" 'PATH=$PLACE/reference/bin:$PATH quick up wg0; host; PATH=$PLACE/$WHO/bin:$PATH quick down wg0; host'
tunnel 0.0.0.0/0 "Address = 10.0.0.2/24" "DNS = 10.0.0.1"
same "down: what ours brought up, by either" 'PATH=$PLACE/ours/bin:$PATH quick up wg0; PATH=$PLACE/$WHO/bin:$PATH quick down wg0; host'
tunnel 10.9.0.0/16 "ListenPort = 5" "FwMark = 6"
same "strip: of a tunnel that is up, with all in the file" 'quick up wg0; quick strip wg0'
tunnel 10.9.0.0/16
sed 's/10\.9/10.8/' "$CASES/next/wireguard/wg0.conf" | file wg1.conf
same "up: two tunnels" 'quick up wg0; quick up wg1; host; quick down wg0; host; quick down wg1; gone wg1; host'
tunnel 10.9.0.0/16
ENGINE=nonsense-that-is-no-program
ours "up: there is no such daemon" 'quick up wg0; see ls /run/wireguard' <<'END'
$ wg-quick up wg0
err: wg-quick: WG_QUICK_USERSPACE_IMPLEMENTATION is nonsense-that-is-no-program: no such program
code 127
END
tunnel 10.9.0.0/16
ENGINE=false
alike "up: the daemon fails" 'quick up wg0; host'
tunnel 10.9.0.0/16
BEFORE='cp -p "$(type -P mockd)" ./with-a-path; ENGINE=$PWD/with-a-path'
alike "up: a daemon with a path" 'quick up wg0; host; quick down wg0; host'

tunnel 10.9.0.0/16 "Address = 10.0.0.2/24" "PostUp = echo then" "PostDown = echo then down" "DNS = 10.0.0.1"
ours "down: what the file was counts, not what it has become" 'quick up wg0; sed -i "s/then/now/; /DNS/d" /etc/wireguard/wg0.conf; quick down wg0; see cat "$SEEN/dns"' <<'END'
$ wg-quick up wg0
out: then
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip -4 address add 10.0.0.2/24 dev wg0
err: [#] ip link set mtu 1370 up dev wg0
err: [#] resolvconf -a wg0 -m 0 -x
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
err: [#] echo then
code 0
$ wg-quick down wg0
out: then down
err: [#] ip link delete dev wg0
err: [#] resolvconf -d wg0 -f
err: [#] echo then down
code 0
resolvconf -a wg0 -m 0 -x
nameserver 10.0.0.1
resolvconf -d wg0 -f
END
tunnel 10.9.0.0/16 "Address = 10.0.0.2/24"
ours "down: though the file has gone" 'quick up wg0; rm /etc/wireguard/wg0.conf; quick down wg0' <<'END'
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip -4 address add 10.0.0.2/24 dev wg0
err: [#] ip link set mtu 1370 up dev wg0
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
code 0
$ wg-quick down wg0
err: [#] ip link delete dev wg0
code 0
END
file wg0.conf <<END
[Interface]
[Peer]
PublicKey = $PEER
AllowedIPs = 10.9.0.0/16
Endpoint = gateway.invalid:5
END
ours "up: does not wait for a name" 'quick up wg0; quick down wg0' <<'END'
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1370 up dev wg0
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
err: gateway.invalid:5: no address yet; retrying in the background
code 0
$ wg-quick down wg0
err: [#] ip link delete dev wg0
code 0
END
tunnel 10.9.0.0/16 "DNS = 10.0.0.1"
ours "DNS: resolvconf fails, and the tunnel stays" 'printf "%s\n" "#!/bin/bash" "echo no >&2; exit 9" >resolvconf; chmod +x resolvconf; PATH=$PWD:$PATH quick up wg0' <<'END'
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1370 up dev wg0
err: [#] resolvconf -a wg0 -m 0 -x
err: Warning: the name servers are not set: `resolvconf -a wg0 -m 0 -x` ended with 9: no
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
code 0
END
tunnel 10.9.0.0/16 "DNS = 10.0.0.1"
ours "DNS: there is no resolvconf" 'mkdir bin; ln -s "$PLACE"/ours/bin/{wg-quick,mockd} bin; ln -s "$(type -P ip)" "$(type -P mkfifo)" "$(type -P rm)" "$(type -P sed)" "$(type -P env)" "$(type -P bash)" bin;  PATH=$PWD/bin quick up wg0; see cat /etc/resolv.conf' <<'END'
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1370 up dev wg0
err: [#] edit /etc/resolv.conf for wg0
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
code 0
#linerate tunnel {"interface":"wg0","dns":{"servers":["10.0.0.1"],"search":[]},"exclusive":true}
#linerate begin: follows from the lines above, and goes with them
nameserver 10.0.0.1
#linerate end
END
tunnel 10.9.0.0/16 "DNS = example.org"
ours "DNS: search domains alone" 'quick up wg0; quick down wg0; see cat "$SEEN/dns"' <<'END'
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1370 up dev wg0
err: [#] resolvconf -a wg0 -m 0
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
code 0
$ wg-quick down wg0
err: [#] ip link delete dev wg0
err: [#] resolvconf -d wg0 -f
code 0
resolvconf -a wg0 -m 0
search example.org
resolvconf -d wg0 -f
END
