#!/usr/bin/env bash
# timeout: 120
# A client of a running server with an end, a quota and a new key, by the commands of `linerate client` alone.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

export LINERATE_USAGE=$WORK/usage
two_hosts
server=/etc/wireguard/wg1.conf
key h1 h2 next
(umask 077 && cat >$server) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.71.8.1/24
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
CONF
client() { # WORD... : its output is in $WORK/out
  at h1 timeout 60 "$LINERATE" client "$@" >"$WORK/out" 2>"$WORK/said" || fail "client $*: $(cat "$WORK/said")"
  say "client $*: ok"
}
carries() { on h2 ping -n -q -c 1 -W 1 10.71.8.1; }
cut_off() { ! on h2 ping -n -q -c 1 -W 0.3 10.71.8.1; }
renewed() { # the client starts over: it does not wait for its own timers
  link_down h2 wg2
  link_up h2 wg2
}
in_file() { grep -qF -- "$1" $server; } # TEXT

good linerate up wg1
client add laptop --pubkey "$(public h2)" --expires "$(date -u -d "@$(($(date +%s) + 8))" +%Y-%m-%dT%H:%M:%SZ)"
# The client's own file is not needed for its preshared key: the server's has it.
sed -n 's/^PresharedKey = //p' $server >"$WORK/h2.psk"
daemon h2 wg2
on h2 wg set wg2 private-key "$WORK/h2.key" peer "$(public h1)" preshared-key "$WORK/h2.psk" endpoint 192.0.2.1:50001 \
  allowed-ips 10.71.8.0/24
wg_address h2 wg2 10.71.8.2/24
wait_for 5 "traffic" carries
wait_for 10 "the client to be cut off" cut_off
wait_for 5 "its section to be comments" in_file "#~ PublicKey = $(public h2)"

client renew laptop --expires 30d
renewed
wait_for 5 "traffic" carries
client set laptop --quota 20k
on h2 ping -n -q -c 30 -i 0.01 -s 1000 -W 1 10.71.8.1 >/dev/null || true
wait_for 5 "the client to be cut off" cut_off
client set laptop --quota 50Mi
renewed
wait_for 5 "traffic" carries
say "another key at once takes over what was used"
used() { printf 'get=1\n\n' | at h1 timeout 5 nc -N -U /run/wireguard/wg1.sock | sed -n 's/^quota_used=//p'; }
before=$(used)
key at-once
client rekey laptop --now --pubkey "$(public at-once)"
expect "its peer alone" "$(public at-once)" "$(at h1 wg show wg1 peers)"
expect_at_least "bytes used with the old key" 20000 "$before"
expect_at_least "bytes used" "$before" "$(used)"
! at h1 "$LINERATE" show wg1 | grep replaces || fail "it still waits for a handshake"
sed -n 's/^PresharedKey = //p' $server >"$WORK/h2.psk"
on h2 wg set wg2 private-key "$WORK/at-once.key" peer "$(public h1)" preshared-key "$WORK/h2.psk"
renewed
wait_for 5 "traffic by the new key" carries
expect_at_least "bytes used" "$before" "$(used)"

client rekey laptop --pubkey "$(public next)"
wait_for 5 "traffic by the old key" carries
sed -n 's/^PresharedKey = //p' $server >"$WORK/h2.psk"
on h2 wg set wg2 private-key "$WORK/next.key" peer "$(public h1)" preshared-key "$WORK/h2.psk"
renewed
wait_for 5 "traffic by the new key" carries
wait_for 5 "the new key to be in the file" in_file "PublicKey = $(public next)"
! in_file NextPublicKey || fail "it still is the next one"
expect "peers" "$(public next)" "$(at h1 wg show wg1 peers)"
say "another key, before the file tells that the one before is used"
key third fourth
supervisor=$(supervisor_of wg1)
kill -STOP "$supervisor"
client rekey laptop --pubkey "$(public third)"
on h2 wg set wg2 private-key "$WORK/third.key"
renewed
wait_for 5 "traffic by the third key" carries
wait_for 5 "its peer alone" eval '[[ $(at h1 wg show wg1 peers) == "$(public third)" ]]'
in_file "NextPublicKey = $(public third)" || fail "the file tells already"
client rekey laptop --pubkey "$(public fourth)"
wait_for 5 "traffic by the third key still" carries
in_file "NextPublicKey = $(public fourth)" || fail "the file has another next key: $(grep PublicKey $server)"
on h2 wg set wg2 private-key "$WORK/fourth.key"
renewed
wait_for 5 "traffic by the fourth key" carries
wait_for 5 "its peer alone" eval '[[ $(at h1 wg show wg1 peers) == "$(public fourth)" ]]'
kill -CONT "$supervisor"
wait_for 5 "the fourth key to be in the file" grep -q "^PublicKey = $(public fourth)" $server
client remove laptop
expect "peers" "" "$(at h1 wg show wg1 peers)"
good linerate down wg1

say "the first quota of a tunnel whose daemon was started without a place to keep what is used"
sed -i '/^#! PublicEndpoint/d' $server
LINERATE_USAGE='' good linerate up wg1
sed -i '/^ListenPort/a #! PublicEndpoint = 192.0.2.1' $server
good linerate reload wg1
said "a server" "is kept over restarts only from the next .up. on"
client add free --pubkey "$(wg genkey | wg pubkey)"
client add limited --pubkey "$(wg genkey | wg pubkey)" --quota 1G
said "a quota" "is kept over restarts only from the next .up. on"
client remove free limited
good linerate down wg1

if type -P nft >/dev/null; then
  say "who gets the address of a client that has expired does not inherit its destinations"
  restricted() { [[ $(at h1 nft list table inet linerate_gateway-wg1) == *"$1"* ]]; }
  not_restricted() { ! restricted "$1"; }
  good linerate up wg1
  client add second --pubkey "$(wg genkey | wg pubkey)" --dest 10.2.0.0/16
  client add first --pubkey "$(wg genkey | wg pubkey)" --dest 10.1.0.0/16 --expires "$(date -u -d "@$(($(date +%s) + 8))" +%Y-%m-%dT%H:%M:%SZ)"
  restricted 10.1.0.0/16 || fail "the client is not restricted: $(at h1 nft list ruleset)"
  wait_for 15 "its section to be comments" in_file "#~ # Name = first"
  wait_for 5 "its destinations to be gone" not_restricted 10.1.0.0/16
  restricted 10.2.0.0/16 || fail "the other client is restricted no more"
  good linerate down wg1
fi
