#!/usr/bin/env bash
# timeout: 120
# A client that `linerate client add` made connects with its exported file and the real wg-quick; every change is in the file
# and in the running tunnel at once, and disturbs nobody else.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need script
two_hosts
host h3
cable h1 e3 h3 e4
address h1 e3 198.51.100.1/24
address h3 e4 198.51.100.3/24

server=/etc/wireguard/wg1.conf
key h1
(umask 077 && cat >$server) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.71.8.1/24, fd71::1/64
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
CONF
client() { # WORD... : its output is in $WORK/out and $WORK/said
  at h1 timeout 60 "$LINERATE" client "$@" >"$WORK/out" 2>"$WORK/said" || fail "client $*: $(cat "$WORK/said")"
  say "client $*: ok"
}
no_client() { # WHAT PATTERN WORD... : is refused with these words, and leaves the file as it is
  local what=$1 pattern=$2 before
  before=$(sha256sum <$server)
  shift 2
  if at h1 timeout 60 "$LINERATE" client "$@" >"$WORK/out" 2>"$WORK/said"; then fail "$what: expected a failure"; fi
  said "$what" "$pattern"
  expect "$what: the file" "$before" "$(sha256sum <$server)"
}
section() { awk -v RS= -v name="# Name = $1\n" 'index($0, name)' $server; } # CLIENT
peers() { on h1 wg show wg1 peers | wc -l; }
seconds_since() { echo $(($(date +%s) - $(handshake_time h1 wg1))); }

say "added before the tunnel is up, and while it is"
client add laptop --output "$WORK/wg2.conf"
good linerate up wg1
client add phone --output "$WORK/wg4.conf" --expires 30d --quota 50Gi --reset monthly --note "in # use"
expect "addresses of the second client" "AllowedIPs = 10.71.8.3/32, fd71::3/128" "$(section phone | grep AllowedIPs)"
expect "peers of the running tunnel" 2 "$(peers)"
expect "the mode of a client's file" 600 "$(stat -c %a "$WORK/wg2.conf")"
! grep -q "$(sed -n 's/^PrivateKey = //p' "$WORK/wg2.conf")" $server || fail "the server keeps a client's private key"
# The host's own addresses are the scenario's: only the names of the cables differ.
sed -i 's/^Endpoint = .*/Endpoint = 198.51.100.1:50001/; s/^AllowedIPs = .*/AllowedIPs = 10.71.8.0\/24, fd71::\/64/' "$WORK/wg4.conf"
sed -i 's/^AllowedIPs = .*/AllowedIPs = 10.71.8.0\/24, fd71::\/64/' "$WORK/wg2.conf"

say "the exported file is one that wg-quick takes"
if has_original; then
  for pair in h2:wg2 h3:wg4; do
    iface=${pair#*:}
    WG_QUICK_USERSPACE_IMPLEMENTATION=$ENGINE PATH=$WORK/bin:$PATH at "${pair%:*}" timeout 60 "$WORK/bin/wg-quick" up "$WORK/$iface.conf" \
      >"$WORK/said" 2>&1 || fail "wg-quick up $iface: $(cat "$WORK/said")"
  done
else
  note "wg-quick and wireguard-go are not both installed: linerate brought the clients' files up"
  at h2 "$LINERATE" up "$WORK/wg2.conf"
  at h3 "$LINERATE" up "$WORK/wg4.conf"
fi
for to in 10.71.8.1 fd71::1; do
  pings h2 $to
  pings h3 $to
done

say "changes of one client leave the other's session alone"
before=$(on h1 wg show wg1 latest-handshakes | grep "$(on h2 wg show wg2 public-key)")
client disable phone
no_ping h3 10.71.8.1
pings h2 10.71.8.1
expect "peers of the running tunnel" 1 "$(peers)"
expect "peers that other tools see" 1 "$(at h1 wg-quick strip wg1 2>/dev/null | grep -c '^\[Peer\]')"
grep -q '^#~ \[Peer\]' $server || fail "a disabled client is no comment: $(cat $server)"
client add tablet --pubkey "$(wg genkey | wg pubkey)"
grep -q '^# PrivateKey' "$WORK/out" || fail "a file without a key does not say so: $(cat "$WORK/out")"
expect "addresses of a disabled client are its own" "AllowedIPs = 10.71.8.4/32, fd71::4/128" "$(section tablet | grep AllowedIPs)"
client enable phone
# Its old session is gone here, which it notices after 15 s without an answer.
wait_for 30 "the second client to come back" on h3 ping -n -c 1 -W 1 10.71.8.1
expect "the other client's last handshake" "$before" "$(on h1 wg show wg1 latest-handshakes | grep "$(on h2 wg show wg2 public-key)")"
client list --json
expect "clients in JSON" "laptop phone tablet" "$(grep -o '"name": "[^"]*"' "$WORK/out" | cut -d'"' -f4 | xargs)"

say "a reload finds nothing to do, and the saved file is the same"
good linerate reload wg1
said "reload" "nothing has changed"
good linerate save wg1
client rename tablet Tab
client remove tab
expect "peers of the running tunnel" 2 "$(peers)"
grep -q '^#! Released = .* 10.71.8.4, fd71::4$' $server || fail "the addresses are not kept back: $(cat $server)"

say "bad input touches nothing"
no_client "a name with a line end" "is not a client's name" add $'x\n[Peer]'
no_client "a name that is there" "already" add Phone
no_client "an unknown name" "there is no client" disable laptop nobody
for verb in show disable enable remove export rekey "renew --expires 1y" "set --note x" add; do
  # shellcheck disable=SC2086 # words
  no_client "$verb with a name twice" "Laptop is named twice; nothing was done" $verb laptop Laptop
done
no_client "a time that has passed" "has passed" add other --expires 2001-01-01
echo "Adress = x" >>$server
no_client "a file with a mistake" "did you mean Address|unknown setting" add other
sed -i '$d' $server

say "an expired client is let in again only by renew"
client add guest --expires 2s --keep-key --output "$WORK/guest.conf"
sleep 2.1
client set laptop --note "any change"
grep -q '^#~ #! Expired = ' $server || fail "the guest is not marked: $(cat $server)"
no_client "enabling one that expired" "client renew guest" enable guest
client renew guest --expires never
expect "peers of the running tunnel" 3 "$(peers)"
client export guest
diff "$WORK/out" "$WORK/guest.conf" || fail "the exported file of a kept key is another"

say "a picture of the file brings a tunnel up"
client qr guest --output "$WORK/guest.png"
client qr guest --output "$WORK/guest.svg"
if type -P zbarimg >/dev/null; then
  zbarimg -q --raw --oneshot "$WORK/guest.png" >"$WORK/read"
  diff <(cat "$WORK/guest.conf"; echo) "$WORK/read" >/dev/null || diff "$WORK/guest.conf" "$WORK/read" || fail "the picture says something else"
  at h2 "$LINERATE" wg-quick down "$WORK/wg2.conf" >/dev/null 2>&1 || ip -n h2 link delete wg2
  wait_for 5 "wg2 to go" eval '[[ ! -e /run/wireguard/wg2.sock ]]'
  (umask 077 && sed 's/^AllowedIPs = .*/AllowedIPs = 10.71.8.0\/24, fd71::\/64/' "$WORK/read" >"$WORK/wg2.conf")
  at h2 "$LINERATE" up "$WORK/wg2.conf"
  pings h2 10.71.8.1
  pings h2 fd71::1
else
  note "zbarimg is not installed: the picture was not read"
fi

say "a code that a terminal cannot show whole"
shown_in() { # LINES : the code of guest, in a window so high
  nsenter --net=/run/netns/h1 script -qec "stty rows $1; $LINERATE client qr guest" "$WORK/typescript" </dev/null >"$WORK/screen" 2>&1
}
shown_in 20
needed=$(sed -n 's/.*make the window \([0-9]*\) lines high, or its font smaller: it has 20 now.*/\1/p' "$WORK/screen")
expect "lines that are needed: those of the code, and the next" $(($(grep -c '\[38;5;16;48;5;231m' "$WORK/screen") + 1)) "$needed"
shown_in $((needed - 1))
grep -q "make the window $needed lines high" "$WORK/screen" || fail "one line less: $(tail -n 2 "$WORK/screen")"
for lines in $needed 0; do
  shown_in "$lines"
  grep -q 'lines high' "$WORK/screen" && fail "$lines lines: $(tail -n 1 "$WORK/screen")"
done

say "a full pool says so"
sed -i 's/^#! PublicEndpoint.*/&\n#! Pool = 10.71.8.0\/29, fd71::\/125/' $server
client add one --json
client add two --json
no_client "a full pool" "pool 10.71.8.0/29 is full: its 6 addresses are taken; widen it with .linerate server set --pool 10.71.8.0/28" add three
