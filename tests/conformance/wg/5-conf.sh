# setconf, addconf, syncconf.

devices wg0
P=aYdQoJuTQzd0bwlzRIFn82TK4TLi+LMnrkkT5bVEUCk=
Q=HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=
R=IkcTzyZCBgLfPv7BPSjMgSFCPY3RDmXGZzLK0GpAdmI=
cat >whole.conf <<END
# A tunnel
[Interface]
PrivateKey = $Q
ListenPort = 51820 # as usual
FwMark = 0x10

[Peer]
PublicKey = $P
PresharedKey = $Q
AllowedIPs = 10.0.0.0/24, fd00::/64
AllowedIPs = 192.0.2.0/24
Endpoint = 192.0.2.1:51820
PersistentKeepalive = 25

[Peer]
PublicKey = $R
END
for verb in setconf addconf syncconf; do
  same "$verb: a whole file" $verb wg0 whole.conf
  same "$verb: an interface that is not there" $verb wg9 whole.conf
  same "$verb: a file that is not there" $verb wg0 missing.conf
  INPUT=$(<whole.conf) same "$verb: standard input" $verb wg0 /dev/stdin
  same "$verb: an empty file" $verb wg0 /dev/null
done

good() { # TITLE TEXT : a file that is taken
  local verb
  printf "$2" >good.conf
  for verb in setconf addconf; do same "$verb: $1" $verb wg0 good.conf; done
}
good "only an interface" '[Interface]\n'
good "only a peer" "[Peer]\nPublicKey=$P\n"
good "white space anywhere" "\t[ inter FACE ]\n listen port = 5 1 8\v\f\n[Pe er]\nPublicKey = ${P:0:20} ${P:20}\n"
good "any case" "[INTERFACE]\nLISTENPORT=5\n[peer]\npublickey=$P\nallowedips=FD00::/8\n"
good "lines of another system" "[Interface]\r\nFwMark = 5\r\n"
good "no end of the last line" '[Interface]\nFwMark = 5'
good "comments" '# one\n[Interface] # two\nFwMark = 5 # three # four\n#FwMark = 6\n'
good "what is after a NUL does not count" '[Interface]\nFwMark = 5\000x\n'
good "several sections of an interface" "[Interface]\nFwMark=1\n[Peer]\nPublicKey=$P\n[Interface]\nFwMark=2\nListenPort=7\n"
good "the same peer twice" "[Peer]\nPublicKey=$P\nAllowedIPs=10.0.0.1\n[Peer]\nPublicKey=$P\nAllowedIPs=10.0.0.2\n"
good "the key of a peer last" "[Peer]\nAllowedIPs=10.0.0.1\nPublicKey=$P\n"
good "a key twice, the last counts" "[Peer]\nPublicKey=$Q\nPublicKey=$P\nPersistentKeepalive=1\nPersistentKeepalive=off\n"
good "host bits, with a warning" "[Peer]\nPublicKey=$P\nAllowedIPs=10.0.0.1/8,fd00::1/8\n"
good "the port of a service" '[Interface]\nListenPort=domain\nFwMark=off\n'
good "an all-zero key" "[Interface]\nPrivateKey=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n[Peer]\nPublicKey=$P\nPresharedKey=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
good "a name" "[Peer]\nPublicKey=$P\nEndpoint=localhost:5\n"

# Where a file is wrong, ours says so after the words of the original: file, line, and what would be right.
bad() { # TITLE PLACE TEXT [SED-SCRIPT] : which makes what ours prints of the original's words
  local title=wg/"setconf: $1"
  printf "$3" >bad.conf
  chosen "$title" || return
  perform reference setconf wg0 bad.conf
  perform ours setconf wg0 bad.conf
  expect_reference
  [[ -z ${4:-} ]] || sed -i "$4" "$PLACE/seen/expected/err"
  [[ -z $2 ]] || echo "bad.conf:$2" >>"$PLACE/seen/expected/err"
  judge "$title"
}
bad "a key that is none" "2: here" '[Interface]\nColour = red\n'
bad "a setting of wg-quick" "2: Address is a setting of wg-quick: \`wg-quick strip\` prints the file without those" '[Interface]\naddress = 10.0.0.1/24\n'
bad "a slip of the pen" "4: did you mean AllowedIPs?" "[Peer]\nPublicKey = $P\n\nAllowedIP = 10.0.0.1/24\n"
bad "a key in the wrong section" "2: ListenPort does not belong in this section" "[Peer]\nListenPort = 5\n"
bad "a key before any section" "1: FwMark does not belong in this section" 'FwMark = 1\n'
bad "a setting without a value" "3: AllowedIPs needs a value" "[Peer]\nPublicKey=$P\nAllowedIPs =\n"
bad "a section that is none" "1: here" '[Interfaces]\n'
bad "another kind of comment" "1: here" '; comment\n'
bad "a mark of byte order" "1: here; there is U+FEFF byte order mark at column 1" '\xef\xbb\xbf[Interface]\n' 's/\xef\xbb\xbf/\\u{feff}/'
bad "a peer without a key" "" '[Peer]\nAllowedIPs=10.0.0.1\n'
bad "a private key that is none" "2: here" '[Interface]\nPrivateKey = short\n'
bad "a public key that is none" "2: here" "[Peer]\nPublicKey = ${P%=}\n"
bad "a preshared key that is none" "3: here" "[Peer]\nPublicKey = $P\nPresharedKey = x\n"
bad "a port that is none" "2: here" '[Interface]\nListenPort = abc\n'
bad "a mark that is none" "2: here" '[Interface]\nFwMark = red\n'
bad "a keepalive that is none" "3: here" "[Peer]\nPublicKey = $P\nPersistentKeepalive = 65536\n"
bad "allowed IPs that are none" "3: here" "[Peer]\nPublicKey = $P\nAllowedIPs = 10.0.0.0/33\n"
bad "a comma too many" "3: here" "[Peer]\nPublicKey = $P\nAllowedIPs = 10.0.0.0/8,\n"
bad "an endpoint without a port" "3: here" "[Peer]\nPublicKey = $P\nEndpoint = 192.0.2.1\n"
VARIABLES=(WG_ENDPOINT_RESOLUTION_RETRIES=x)
same "setconf: a bad number of retries" setconf wg0 whole.conf

# The original looks it up 15 times.
printf "[Peer]\nPublicKey=$P\nEndpoint=192.0.2.1:abc\n" >port.conf
CODE=1 ERR='Servname not supported for ai_socktype: `192.0.2.1:abc'"'
Configuration parsing error
port.conf:3: here
"
ours "setconf: a bad port is not asked for again" setconf wg0 port.conf
CODE=1 ERR="fread: Is a directory
"
ours "setconf: a folder changes nothing, where the original takes everything away" setconf wg0 "$FILES"
printf "[Peer]\nPublicKey=$P\nAllowedIPs=+10.0.0.1,-10.0.0.2\n" >change.conf
ASKED="set=1
public_key=$(hex $P)
allowed_ip=10.0.0.1/32
allowed_ip=-10.0.0.2/32

"
ours "addconf: single changes of allowed IPs" addconf wg0 change.conf
printf "[Peer]\nPublicKey=$P\nAllowedIPs=+10.0.0.1\nAllowedIPs=10.0.0.2\n" >change.conf
ASKED="set=1
public_key=$(hex $P)
replace_allowed_ips=true
allowed_ip=10.0.0.1/32
allowed_ip=10.0.0.2/32

"
ours "addconf: a list after a change replaces" addconf wg0 change.conf

# syncconf, for a daemon that has peers already.
running() { # KEY... : plain peers
  local key
  printf 'listen_port=51820\n'
  for key; do peer "$(hex "$key")" $ZERO "" never 0 0 0 10.9.9.9/32; done
}
synced() { # TITLE TEXT
  printf "$2" >sync.conf
  same "syncconf: $1" syncconf wg0 sync.conf
}
state wg0 < <(running)
synced "peers where there are none" "[Peer]\nPublicKey=$P\n"
state wg0 < <(running $P $Q $R)
synced "no peers where there are some" '[Interface]\nFwMark=1\n'
synced "the same peers" "[Peer]\nPublicKey=$R\n[Peer]\nPublicKey=$P\nAllowedIPs=10.0.0.1\n[Peer]\nPublicKey=$Q\n"
synced "one peer less" "[Peer]\nPublicKey=$P\n[Peer]\nPublicKey=$R\n"
synced "two peers less" "[Peer]\nPublicKey=$Q\nEndpoint=192.0.2.1:5\n"
synced "all others" "[Peer]\nPublicKey=//////////////////////////////////////////8=\nPersistentKeepalive=5\n"
synced "one peer twice" "[Peer]\nPublicKey=$Q\nAllowedIPs=10.0.0.1\n[Peer]\nPublicKey=$Q\nAllowedIPs=10.0.0.2\n"
printf 'errno=5\n\n' >"$STATE/wg0.get"
synced "a daemon that does not tell its state" "[Peer]\nPublicKey=$P\n"
synced "a daemon that does not tell its state, and need not" "[Interface]\n"

# Taking away a preshared key and a keepalive is newer than 1.0.20210914.
state wg0 < <(peer "$(hex $P)" $ONES "" never 0 0 25 && peer "$(hex $Q)" $ONES "" never 0 0 25)
DEVICE="set=1
private_key=$ZERO
listen_port=0
fwmark=0"
printf "[Peer]\nPublicKey=$P\n" >sync.conf
ASKED="$DEVICE
public_key=$(hex $Q)
remove=true
public_key=$(hex $P)
preshared_key=$ZERO
persistent_keepalive_interval=0
replace_allowed_ips=true

"
ours "syncconf: a preshared key and a keepalive that the file has not" syncconf wg0 sync.conf
printf "[Peer]\nPublicKey=$P\nPresharedKey=$Q\nPersistentKeepalive=5\n[Peer]\nPublicKey=$Q\nPersistentKeepalive=off\n" >sync.conf
ASKED="$DEVICE
public_key=$(hex $P)
preshared_key=$(hex $Q)
persistent_keepalive_interval=5
replace_allowed_ips=true
public_key=$(hex $Q)
preshared_key=$ZERO
persistent_keepalive_interval=0
replace_allowed_ips=true

"
ours "syncconf: a preshared key and a keepalive that the file has" syncconf wg0 sync.conf
printf "[Peer]\nPublicKey=$P\nAllowedIPs=-10.0.0.1\n" >sync.conf
state wg0 < <(running $P)
ASKED="$DEVICE
public_key=$(hex $P)
allowed_ip=-10.0.0.1/32

"
ours "syncconf: single changes of allowed IPs" syncconf wg0 sync.conf
