# set.

devices wg0 wg1 fifteen-letters
P=aYdQoJuTQzd0bwlzRIFn82TK4TLi+LMnrkkT5bVEUCk=
Q=HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=
printf '%s\n' $Q >key
printf '%s \n\t\n' $P >other
: >empty
printf '%s' "${Q%=}" >short
printf '%s\nx' $Q >trailing
printf '%s' "${Q/n/_}" >bad
mkdir -p folder

same "set: a listen port" set wg0 listen-port 51820
for port in 0 domain 70000 010 +5 " 5" 99999999999; do same "set: the listen port '$port'" set wg0 listen-port "$port"; done
for port in "" abc -1 0x10 "5 "; do same "set: no listen port: '$port'" set wg0 listen-port "$port"; done
for mark in 0 off OFF 010 4294967295 0x0 0xfF 0xffffffff 00000000005; do same "set: the mark '$mark'" set wg0 fwmark "$mark"; done
for mark in "" 0x 0X10 -1 4294967296 0x100000000 99999999999999999999 12z 0xG 0x+1 " 1" on; do
  same "set: no mark: '$mark'" set wg0 fwmark "$mark"
done
same "set: a private key" set wg0 private-key key
same "set: a private key with white space after it" set wg0 private-key other
same "set: no private key: an empty file" set wg0 private-key empty
same "set: no private key: /dev/null" set wg0 private-key /dev/null
INPUT=$Q same "set: a private key from standard input" set wg0 private-key /dev/stdin
INPUT="" same "set: nothing from standard input" set wg0 private-key /dev/stdin
for file in missing short trailing bad ""; do same "set: the private key in '$file'" set wg0 private-key "$file"; done
CODE=1 ERR="fread: Is a directory
" ours "set: the private key in a folder" set wg0 private-key folder
same "set: all of the device" set wg0 listen-port 1 fwmark 0x10 private-key key
same "set: all of the device in another order, the last word counts" set wg0 private-key other fwmark 1 listen-port 2 fwmark 2

same "set: a peer" set wg0 peer $P
same "set: two peers" set wg0 peer $P peer $Q
same "set: the same peer twice" set wg0 peer $P persistent-keepalive 1 peer $P persistent-keepalive 2
for key in "" "${P%=}" " $P" "$P " "${P/+/-}" AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB= "${P}x"; do
  same "set: no peer: '$key'" set wg0 peer "$key"
done
same "set: a peer to remove" set wg0 peer $P remove
same "set: of a peer to remove nothing else is sent" set wg0 peer $P allowed-ips 10.0.0.1/32 remove persistent-keepalive 5 peer $Q
same "set: everything of a peer" set wg0 peer $P preshared-key key endpoint 192.0.2.1:5 persistent-keepalive 25 allowed-ips 10.0.0.0/24,fd00::/64
same "set: everything of a peer in another order" set wg0 peer $P allowed-ips fd00::/64 persistent-keepalive 25 endpoint '[2001:db8::1]:5' preshared-key key
same "set: no preshared key" set wg0 peer $P preshared-key /dev/null
same "set: a preshared key from standard input" set wg0 peer $P preshared-key /dev/stdin
for file in missing short trailing bad; do same "set: the preshared key in '$file'" set wg0 peer $P preshared-key "$file"; done
for seconds in 0 off Off 1 65535 0025; do same "set: the keepalive '$seconds'" set wg0 peer $P persistent-keepalive "$seconds"; done
for seconds in "" 65536 -1 1s on " 1" 0x1; do same "set: no keepalive: '$seconds'" set wg0 peer $P persistent-keepalive "$seconds"; done

endpoint() { VARIABLES=(WG_ENDPOINT_RESOLUTION_RETRIES=0) && same "set: the endpoint '$1'" set wg0 peer $P endpoint "$1"; }
for at in 192.0.2.1:51820 '[2001:db8::1]:51820' 192.0.2.1:0 192.0.2.1:99999 192.0.2.1:domain 127.1:5 0x7f000001:5 localhost:5 \
  ::1:51820 '[::ffff:192.0.2.1]:5' '[192.0.2.1]:5' '[fe80::1%lo]:51820' \
  "" x : '[::1' '[::1]' '[::1]:' '[::1]5' '[::1]x:5' 192.0.2.1 192.0.2.1: :5 '[]:5' '[fe80::1%nowhere]:5' '192.0.2.1 :5' 192.0.2.1:abc \
  name.invalid:5; do
  endpoint "$at"
done
# The original looks it up 15 times.
CODE=1 ERR='Servname not supported for ai_socktype: `192.0.2.1:abc'"'
"
ours "set: a bad port is not asked for again" set wg0 peer $P endpoint 192.0.2.1:abc
VARIABLES=(WG_ENDPOINT_RESOLUTION_RETRIES=many)
same "set: a bad number of retries fails even for an address" set wg0 peer $P endpoint 192.0.2.1:5
VARIABLES=(WG_ENDPOINT_RESOLUTION_RETRIES=-1)
same "set: a negative number of retries" set wg0 peer $P endpoint 192.0.2.1:5
VARIABLES=(WG_ENDPOINT_RESOLUTION_RETRIES=99999999999)
same "set: a number of retries too large" set wg0 peer $P endpoint 192.0.2.1:5
VARIABLES=(WG_ENDPOINT_RESOLUTION_RETRIES=)
same "set: an empty number of retries" set wg0 peer $P endpoint 192.0.2.1:5
VARIABLES=(WG_ENDPOINT_RESOLUTION_RETRIES=infinity)
same "set: any number of retries" set wg0 peer $P endpoint 192.0.2.1:5
VARIABLES=(WG_ENDPOINT_RESOLUTION_RETRIES=1)
same "set: one retry says so and waits" set wg0 peer $P endpoint name.invalid:5

ips() { same "set: the allowed IPs '$1'" set wg0 peer $P allowed-ips "$1"; }
for list in 10.0.0.1 fd00::1 10.0.0.0/8 0.0.0.0/0 ::/0 10.0.0.1/24 fd00::1/64 255.255.255.255/0 ffff::/1 "" " 10.0.0.0/8 ,	fd00::/8 " \
  10.0.0.0/08 10.0.0.1,10.0.0.1 2001:DB8::/32 ::ffff:192.0.2.0/120 1:0:0:2:0:0:0:3 \
  10.0.0.0/33 fd00::/129 10.0.0.0/ 10.0.0.0/255.0.0.0 10.0.0.0/-1 10.0.0.0/x 10.0.0.0/8/8 10.0.0.0/8, , ,10.0.0.0/8 example.com 010.0.0.1 10.0.0 \
  fe80::1%lo/128 '[fd00::]/8' 10.0.0.1/24,x; do
  ips "$list"
done
same "set: allowed IPs twice are all of them" set wg0 peer $P allowed-ips 10.0.0.0/8 allowed-ips fd00::/8

same "set: a word that is none" set wg0 colour red
same "set: a word without its value" set wg0 listen-port
same "set: a peer without its key" set wg0 peer
same "set: an allowed-ips without its value" set wg0 peer $P allowed-ips
same "set: a word of the device after a peer" set wg0 peer $P fwmark 1
same "set: a word of a peer before any" set wg0 endpoint 192.0.2.1:5
same "set: remove before any peer" set wg0 remove
same "set: words are case-sensitive" set wg0 Peer $P
same "set: nothing is sent when a later word is wrong" set wg0 listen-port 5 fwmark x

same "set: an interface that is not there" set wg9 fwmark 1
same "set: an interface that is none of ours" set lo fwmark 1
same "set: a name that leaves the folder" set ../wg0 fwmark 1
same "set: a name is cut to what an interface can have" set fifteen-letters-and-more fwmark 1
BEFORE='dead wg8' same "set: a socket that nobody answers on" set wg8 fwmark 1
for number in 0 -1 -22 -71 -98 -55 98 5; do
  answer wg0 "errno=$number\n\n"
  same "set: a daemon that answers $number" set wg0 fwmark 1
done
answer wg0 'hello\n\n'
same "set: a daemon that answers no number" set wg0 fwmark 1
answer wg0 ''
same "set: a daemon that hangs up" set wg0 fwmark 1
rm "$STATE/wg0.set"

# Single changes of allowed IPs are newer than 1.0.20210914.
changed() { # TITLE LINES LIST... : what is sent for `allowed-ips LIST` after one another
  local title=$1 lines=$2 words=() list
  shift 2
  for list; do words+=(allowed-ips "$list"); done
  ASKED="set=1
public_key=$(hex $P)
$lines
" ours "set: $title" set wg0 peer $P "${words[@]}"
}
changed "an allowed IP more" "allowed_ip=10.0.0.1/32
" +10.0.0.1
changed "an allowed IP less" "allowed_ip=-10.0.0.1/32
" -10.0.0.1/32
changed "one more, one less, and one without a sign is one more" "allowed_ip=10.0.0.1/32
allowed_ip=-fd00::/64
allowed_ip=10.0.0.2/32
" "+10.0.0.1, - fd00::/64, 10.0.0.2"
changed "a list after a change replaces" "replace_allowed_ips=true
allowed_ip=10.0.0.1/32
allowed_ip=10.0.0.2/32
" +10.0.0.1 10.0.0.2
changed "a change after a list does not" "allowed_ip=10.0.0.2/32
allowed_ip=-10.0.0.1/32
" 10.0.0.2 -10.0.0.1
CODE=1 ERR="Unable to parse IP address: \`'
" ours "set: a sign alone is no allowed IP" set wg0 peer $P allowed-ips +
CODE=1 ERR="Unable to parse IP address: \`+10.0.0.1'
" ours "set: two signs are one too many" set wg0 peer $P allowed-ips ++10.0.0.1
