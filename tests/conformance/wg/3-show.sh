# show and showconf.

devices
same "show: no tunnel at all"
same "show: all of no tunnels" show all
same "show: the names of no tunnels" show interfaces
same "show: a wrong field of no tunnels" show all colour
same "show: an interface that is not there" show wg9
same "show: an interface that is none of ours" show lo
same "show: a field of an interface that is not there" show wg9 peers
same "show: a wrong field of an interface that is not there" show wg9 colour
same "show: a name that leaves the folder" show ../wg0
same "show: an empty name" show ""
same "showconf: an interface that is not there" showconf wg9

P=aYdQoJuTQzd0bwlzRIFn82TK4TLi+LMnrkkT5bVEUCk= A=$(hex $P)
Q=INSprC5fnD8aKzxNXm9wgZKjtMXW5/gJGis8TV5vcIE= B=$(hex $Q)
R=/9SprC5fnD8aKzxNXm9wgZKjtMXW5/gJGis8TV5vcP8= C=$(hex $R)
ZERO=0000000000000000000000000000000000000000000000000000000000000000
ONES=1111111111111111111111111111111111111111111111111111111111111111
private=c809f3e5317e9575c9b5ed78b638b7ce530dabe85ddab614220241801ddf0669

peer() { # KEY PSK ENDPOINT AGE RX TX KEEPALIVE PREFIX...
  printf 'public_key=%s\npreshared_key=%s\nprotocol_version=1\n' "$1" "$2"
  [[ -z $3 ]] || echo "endpoint=$3"
  if [[ $4 == never ]]; then
    printf 'last_handshake_time_sec=0\nlast_handshake_time_nsec=0\n'
  else
    printf 'last_handshake_time_sec=%s\nlast_handshake_time_nsec=5\n' $((EPOCHSECONDS - $4))
  fi
  printf 'tx_bytes=%s\nrx_bytes=%s\npersistent_keepalive_interval=%s\n' "$6" "$5" "$7"
  ((${#@} < 8)) || printf 'allowed_ip=%s\n' "${@:8}"
}
state bare </dev/null
state full < <(
  printf 'private_key=%s\nlisten_port=51820\nfwmark=4660\n' $private
  peer $A $ONES 192.0.2.1:51820 3725 1023 1 25 10.0.0.0/24 fd00::/64
  peer $B $ZERO "" never 0 0 0
  peer $C $ZERO '[2001:db8::1]:1' 5 1024 1048576 65535 0.0.0.0/0 ::/0 2001:db8:0:0:1::/128
)
devices full
fields="public-key private-key listen-port fwmark peers preshared-keys endpoints allowed-ips latest-handshakes transfer persistent-keepalive dump"
same "show: for people"
same "show: for people, by name" show full
same "show: the names" show interfaces
same "showconf: a tunnel with everything" showconf full
for field in $fields; do same "show: $field" show full "$field"; done
same "show: a wrong field" show full colour
same "show: a field is case-sensitive" show full Peers
same "show: a wrong field of all" show all colour
VARIABLES=(WG_COLOR_MODE=always)
same "show: with colours" show full
VARIABLES=(WG_COLOR_MODE=never)
same "show: without colours" show full
VARIABLES=(WG_COLOR_MODE=sometimes)
same "show: with a colour mode that is none" show full
VARIABLES=(WG_COLOR_MODE=always)
same "show: fields have no colours" show full dump
VARIABLES=(WG_HIDE_KEYS=never)
same "show: with keys" show full
VARIABLES=(WG_HIDE_KEYS=Never)
same "show: with another word for WG_HIDE_KEYS" show full
VARIABLES=(WG_HIDE_KEYS=always)
same "show: fields do not hide keys" show full private-key

devices bare
same "show: a tunnel without anything" show bare
same "showconf: a tunnel without anything" showconf bare
for field in $fields; do same "show: $field of a tunnel without anything" show bare "$field"; done

devices full bare
same "show: several tunnels"
same "show: the names of several" show interfaces
VARIABLES=(WG_COLOR_MODE=always)
same "show: several with colours" show all
for field in $fields; do
  # The installed version may name the interface only once per device there.
  [[ $field == endpoints ]] || same "show: $field of several" show all "$field"
done
OUT="full	$P	192.0.2.1:51820
full	$Q	(none)
full	$R	[2001:db8::1]:1
" ours "show: endpoints of several, each with its interface" show all endpoints

one() { # TITLE AGE : one peer with a handshake of that age
  state one < <(peer $A $ZERO "" "$2" 0 0 0)
  same "show: a handshake $1"
}
devices one
one "now" 0
one "a second ago" 1
one "two minutes ago" 120
one "two days and a second ago" 172801
one "a year, a day, an hour, a minute and a second ago" $((365 * 86400 + 86400 + 3600 + 61))
one "of tomorrow" -86400
VARIABLES=(WG_COLOR_MODE=always)
one "of tomorrow, in red" -86400
for bytes in 1 1023 1024 1047527 1048576 1073741824 1099511627776 1099511627776000 18446744073709551615; do
  state one < <(peer $A $ZERO "" never $bytes 0 0)
  same "show: $bytes bytes" show one
done
for seconds in 1 60 3661 65535; do
  state one < <(peer $A $ZERO "" never 0 0 $seconds)
  same "show: a keepalive of $seconds seconds" show one
done
state one < <(peer $A $ZERO '[fe80::1%lo]:5' never 0 0 0)
same "show: an endpoint with a zone" show one
same "showconf: an endpoint with a zone" showconf one

said() { # TITLE TEXT : a daemon that answers that
  printf "$2" >"$STATE/one.get"
  same "show: a daemon that $1" show one
  same "show: a daemon among all that $1" show all public-key
  same "showconf: a daemon that $1" showconf one
}
said "refuses" 'errno=1\n\n'
said "refuses with a negative number" 'errno=-5\n\n'
said "hangs up" ''
said "ends early" 'listen_port=1\nerrno=0\n'
said "says no number" 'listen_port=none\nerrno=0\n\n'
said "says a number too large" 'fwmark=4294967296\nerrno=0\n\n'
said "says a line that is none" 'hello\nerrno=0\n\n'
said "says a bad key" 'private_key=c809\nerrno=0\n\n'
said "says a prefix without a length" "public_key=$A\nallowed_ip=10.0.0.1\nerrno=0\n\n"
said "says counts beyond 64 bits" "public_key=$A\\nrx_bytes=18446744073709551616\\ntx_bytes=99999999999999999999999\\nerrno=0\\n\\n"
said "says an endpoint without brackets" "public_key=$A\\nendpoint=2001:db8::1:5\\nerrno=0\\n\\n"
# The original shows nothing of such a device, and asks a resolver for the name.
for value in "endpoint=[fe80::1%%gone]:5" endpoint=gone.invalid:5 last_handshake_time_sec=9223372036854775808; do
  printf "public_key=$A\\n$value\\nrx_bytes=5\\nerrno=0\\n\\n" >"$STATE/one.get"
  OUT="$P	5	0
" ours "show: a daemon that says $value loses that field" show one transfer
done
said "says more than is known" 'colour=red\nlisten_port=7\nerrno=0\n\n'
said "says lines of a peer without one" 'rx_bytes=5\nlisten_port=7\nerrno=0\n\n'

devices full broken
printf 'errno=-5\n\n' >"$STATE/broken.get"
same "show: one of two does not answer"
same "show: a field of two, of which one does not answer" show all fwmark
same "show: a wrong field of two, of which one does not answer" show all colour

devices
BEFORE='dead wg8' same "show: a socket that nobody answers on" show wg8
BEFORE='dead wg8' same "show: a socket that nobody answers on, among all" show all
BEFORE='dead wg8' same "show: a socket that nobody answers on, in the list of names" show interfaces
BEFORE='dead wg8' same "showconf: a socket that nobody answers on" showconf wg8
BEFORE='dead wg8; ln -sf wg8.sock /run/wireguard/wg7.sock' same "show: a symbolic link to a socket that nobody answers on" show wg7
BEFORE='dead wg8; ln -sf wg8.sock /run/wireguard/wg7.sock' same "show: the same in the list of names" show interfaces
BEFORE='rm -f /run/wireguard/*; ln -sf none /run/wireguard/wg7.sock' same "show: a symbolic link to nothing" show interfaces
BEFORE='rm -f /run/wireguard/*; : >/run/wireguard/wg8.sock' same "show: a file that is no socket" show wg8
BEFORE='rm -f /run/wireguard/*; : >/run/wireguard/wg8.sock' same "show: a file that is no socket, among all" show all
rm -f /run/wireguard/*

devices one
ln -s one.sock /run/wireguard/other.sock
ln -s /dev/null /run/wireguard/null.sock
same "show: an interface whose socket is a symbolic link, in the list of names" show interfaces
same "show: an interface whose socket is a symbolic link" show other
same "show: an interface whose socket is a symbolic link, among all" show all public-key
rm -f /run/wireguard/{other,null}.sock

CODE=0 OUT='{
  "one": {
    "listenPort": 7,
    "peers": {}
  }
}
'
devices one
ours "show: --json" show one --json
CODE=1 ERR="Usage: wg show { <interface> | all | interfaces } [public-key | private-key | listen-port | fwmark | peers | preshared-keys | endpoints | allowed-ips | latest-handshakes | transfer | persistent-keepalive | dump]
" ours "show: --json is no field" show one peers --json
devices
CODE=1 ERR="Unable to access interface: File name too long
" ours "show: a name that no interface can have" show a-very-long-interface-name
