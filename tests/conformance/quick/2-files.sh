# What is read in a file, and what `strip` leaves of it, to the byte.

stripped() { # TITLE TEXT : what wg gets of a file; TEXT is for printf
  printf "$2" | file wg0.conf
  same "strip: $1" 'quick strip wg0'
}
P="[Peer]\nPublicKey = $PEER\nAllowedIPs = 10.9.0.0/16\n"
stripped "nothing" ''
stripped "an empty line" '\n'
stripped "only a comment" '# one'
stripped "only an interface" '[Interface]\n'
stripped "no end of the last line" "[Interface]\nListenPort = 5\nAddress = 10.0.0.1"
stripped "no end of the last line, of wg" "[Interface]\nListenPort = 5"
stripped "all that is wg-quick's" "[Interface]\nAddress = 10.0.0.1\nDNS = 1.1.1.1\nMTU = 1400\nTable = off\nPreUp = a\nPostUp = b\nPreDown = c\nPostDown = d\nSaveConfig = true\n$P"
stripped "all that is wg's" "[Interface]\nPrivateKey = $KEY\nListenPort = 5\nFwMark = 0x5\n${P}PresharedKey = $KEY\nEndpoint = example.org:5\nPersistentKeepalive = 25\n"
stripped "any case of keys and headers" "[INTERFACE]\nADDRESS = 10.0.0.1\naddress=10.0.0.2\nmtu=1400\nlistenport=5\n[peer]\nAddress = stays\n"
stripped "white space around keys" "  [Interface]  \n\t Address\t=\t10.0.0.1 \n Address= 10.0.0.2\nAddress =10.0.0.3\n  ListenPort = 5  \n"
stripped "white space within keys" "[Interface]\nAd dress = 10.0.0.1\nListen Port = 5\n"
stripped "white space within headers" "[ Interface ]\nAddress = 10.0.0.1\n"
stripped "comments" "# first\n[Interface] # it\nAddress = 10.0.0.1 # the address\n# Address = 10.0.0.2\nListenPort = 5 # a port\n#\n   # indented\n${P}# last\n"
stripped "a header with something after it" "[Interface] x\nAddress = 10.0.0.1\n"
stripped "lines of another system" "[Interface]\r\nAddress = 10.0.0.1\r\nListenPort = 5\r\n[Peer]\r\nPublicKey = $PEER\r\n"
stripped "empty lines and trailing spaces" "\n\n[Interface]\n\nAddress = 10.0.0.1\n\nListenPort = 5   \n\n\n$P\n\n"
stripped "keys of wg-quick in other sections stay" "Address = 10.0.0.9\n[Peer]\nAddress = 10.0.0.1\nMTU = 5\n[Other]\nDNS = 1.1.1.1\n"
stripped "keys of wg-quick before any section" "MTU = 5\nListenPort = 5\n[Interface]\nMTU = 6\n"
stripped "a second interface section" "[Interface]\nAddress = 10.0.0.1\n${P}[Interface]\nMTU = 1400\nListenPort = 5\n"
stripped "keys without a value" "[Interface]\nAddress =\nAddress\nMTU=\nDNS = \nListenPort = 5\n"
stripped "equals signs in values" "[Interface]\nPostUp = a=b == c\nPrivateKey = $KEY\n"
stripped "unknown settings stay" "[Interface]\nJc = 4\nColour = blue\n$P"
stripped "keys that begin like others" "[Interface]\nAddresses = 10.0.0.1\nMTUs = 5\nPostUpX = a\n"
stripped "backslashes" "[Interface]\nPostUp = echo a\\\\\\\\\nListenPort = \\\\5\n# c:\\\\temp\n"
stripped "a byte-order mark" "\xef\xbb\xbf[Interface]\nAddress = 10.0.0.1\n"
stripped "letters beyond ASCII" "[Interface]\n# Größe\nAddress = 10.0.0.1 # Straße\n# Name = Jürgen\n$P"
stripped "what is no text" "[Interface]\n# \xff\xfe\nListenPort = 5\n"
stripped "the keys of ours, which are comments" "[Interface]\n# KillSwitch = true\nAddress = 10.0.0.1\n# Name = home\n$P"
for value in true false TRUE False tRuE; do
  stripped "SaveConfig = $value" "[Interface]\nSaveConfig = $value\n"
done
for value in yes 1 '' 'true false' tru; do
  stripped "SaveConfig = ${value:-nothing}" "[Interface]\nSaveConfig = $value\nListenPort = 5\n"
done
for verb in up down save; do
  tunnel 10.9.0.0/16 "SaveConfig = maybe"
  same "file: $verb with a SaveConfig that is neither" "quick $verb wg0; host"
done

# What up makes of the same.
up() { # TITLE TEXT
  printf "$2" | file wg0.conf
  same "up: $1"
}
up "an empty file" ''
up "only an interface" '[Interface]\n'
up "lists with odd spacing" "[Interface]\nAddress=10.0.0.1/24,10.0.1.1/24 , fd00::1/64,,\n${P}AllowedIPs = 10.8.0.0/16 ,fd01::/48\n"
up "lists without commas" "[Interface]\nAddress = 10.0.0.1/24 10.0.1.1/24\n$P"
up "addresses that are repeated" "[Interface]\nAddress = 10.0.0.1/24\nMTU = 1300\nAddress = fd00::1/64\n$P"
printf "[Interface]\nMTU = 1300\nMTU = 1310\nTable = off\nTable = 77\n$P" | file wg0.conf
warns "up: the last of keys that are repeated counts" <<'END'
err: /etc/wireguard/wg0.conf:3:1: warning: MTU is set twice (the last one counts)
err: /etc/wireguard/wg0.conf:5:1: warning: Table is set twice (the last one counts)
END
up "tabs" "[Interface]\nAddress\t=\t10.0.0.1/24\t,\tfd00::1/64\nDNS =\t10.0.0.1\texample.org\n"
up "any case" "[INTERFACE]\nADDRESS = 10.0.0.1/24\nmTu = 1300\ntABLE = off\n[pEER]\npublickey = $PEER\nALLOWEDips = 10.9.0.0/16\n"
up "comments" "[Interface] # it\nAddress = 10.0.0.1/24 # one\n# Address = 10.0.0.2/24\nMTU = 1300# tight\n$P"
up "lines of another system" "[Interface]\r\nAddress = 10.0.0.1/24\r\nMTU = 1300\r\n[Peer]\r\nPublicKey = $PEER\r\nAllowedIPs = 10.9.0.0/16\r\n"
up "no end of the last line" "[Interface]\nAddress = 10.0.0.1/24\nMTU = 1300\n[Peer]\nPublicKey = $PEER\nAllowedIPs = 10.9.0.0/16"
up "lines of another system, and a command" "[Interface]\r\nPostUp = echo a\r\n[Peer]\r\nPublicKey = $PEER\r\nAllowedIPs = 10.9.0.0/16\r\n"
up "an interface section after the peers" "${P}[Interface]\nAddress = 10.0.0.1/24\n"
up "two interface sections" "[Interface]\nAddress = 10.0.0.1/24\n${P}[Interface]\nMTU = 1300\n"
up "a preshared key and a keepalive" "[Interface]\nPrivateKey = $KEY\nListenPort = 5\nAddress = 10.0.0.1/24\n${P}PresharedKey = $KEY\nPersistentKeepalive = 25\nEndpoint = [2001:db8::7]:5\n"
up "a keepalive that is off" "[Interface]\nAddress = 10.0.0.1/24\n${P}PersistentKeepalive = off\n"
up "a mark in the file" "[Interface]\nAddress = 10.0.0.1/24\nFwMark = 0x1234\n$P"
up "an endpoint with a zone" "[Interface]\nAddress = 10.0.0.1/24\n${P}Endpoint = [fe80::1%%eth0]:5\n"
up "no key" "[Interface]\nAddress = 10.0.0.1/24\n$P"
up "a peer without allowed IPs" "[Interface]\nAddress = 10.0.0.1/24\n[Peer]\nPublicKey = $PEER\n"
printf "[Interface]\nAddress = 10.0.0.1/24\n${P}[Peer]\nPublicKey = $OTHER\nAllowedIPs = 10.9.0.0/16, 10.8.0.0/16\n" | file wg0.conf
# The first peer is not given what the second takes away.
alike "up: allowed IPs that one peer takes from another"

# What is wrong is refused by both, and nothing is left of it.
bad() { # TITLE TEXT
  printf "$2" | file wg0.conf
  alike "bad: $1" 'quick up wg0; host'
}
bad "an unknown setting" "[Interface]\nColour = blue\n$P"
bad "an unknown section" "[Interface]\n${P}[Other]\nA = b\n"
bad "a peer's key in the interface" "[Interface]\nAllowedIPs = 10.0.0.0/8\n$P"
bad "an interface's key in a peer" "[Interface]\n${P}ListenPort = 5\n"
bad "a private key that is none" "[Interface]\nPrivateKey = abc\n$P"
bad "a mark that is none" "[Interface]\nFwMark = red\n$P"
bad "a peer without a key" "[Interface]\n[Peer]\nAllowedIPs = 10.9.0.0/16\n"
bad "a public key that is none" "[Interface]\n[Peer]\nPublicKey = abc\n"
bad "allowed IPs that are none" "[Interface]\n${P}AllowedIPs = 10.0.0.0/33\n"
bad "an endpoint without a port" "[Interface]\n${P}Endpoint = 192.0.2.1\n"
bad "a keepalive that is too long" "[Interface]\n${P}PersistentKeepalive = 65536\n"
bad "an address that is none" "[Interface]\nAddress = 10.0.0.256/24\n$P"
bad "an address with a prefix that is too long" "[Interface]\nAddress = 10.0.0.1/33\n$P"
bad "a name as an address" "[Interface]\nAddress = localhost\n$P"
bad "text before any section" "hello\n[Interface]\n$P"
bad "a header that is not closed" "[Interface\nListenPort = 5\n$P"

# Where the original comes to `ip` with it, and takes back what it did, ours has not begun.
refused() { # TITLE LINE <<TRANSCRIPT
  tunnel 10.9.0.0/16 "$2"
  ours "refused: $1" 'quick up wg0'
}
refused "an MTU that is no number" "MTU = big" <<'END'
$ wg-quick up wg0
err: wg-quick: /etc/wireguard/wg0.conf:3:7: `big` is not an MTU (use 68 to 65535 bytes; 1420 fits Ethernet)
code 1
END
refused "an MTU that is too small" "MTU = 10" <<'END'
$ wg-quick up wg0
err: wg-quick: /etc/wireguard/wg0.conf:3:7: `10` is not an MTU (use 68 to 65535 bytes; 1420 fits Ethernet)
code 1
END
refused "a table that is none" "Table = nonsense" <<'END'
$ wg-quick up wg0
err: wg-quick: /etc/wireguard/wg0.conf:3:9: `nonsense` is not a routing table (use auto, off, a number, or a name from /etc/iproute2/rt_tables)
code 1
END
# The resolver of the original takes it for 0.
refused "a port that is too high" "ListenPort = 65536" <<'END'
$ wg-quick up wg0
err: wg-quick: /etc/wireguard/wg0.conf:3:14: `65536` is not a port (use 0 to 65535; with 0 the system chooses one)
code 1
END
tunnel 10.9.0.0/16 "Table = OFF"
ours "up: a table that is off in any case" 'quick up wg0' <<'END'
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1370 up dev wg0
code 0
END
