#!/usr/bin/env bash
# timeout: 800
# A tunnel with the Linux kernel's own module, in an emulated machine; exact counters, congestion marks, our tools, and a rekey.
source "$(dirname "$0")/lib.sh"

# The guest's processor is emulated beside everything else that runs here, and one of its answers was lost once in five
# runs; where is not known. A series that loses one is sent once more, and the counters of our side go to the log.
our_ping() { # ADDRESS [PING OPTION...]
  on h1 ping -n -q -c 3 -i 0.05 -W 3 "${@:2}" "$1" >"$WORK/first" 2>&1 || true
  grep -q ' 0% packet loss' "$WORK/first" && say "ping from h1 to $*: ok" && return
  note "a ping from h1 to $* was lost and sent again"
  on h1 "$LINERATE" show wg1 --stats || true
  pings h1 "$@"
}

interop

say "counters: what one side sent, the other received"
start_theirs
start_ours endpoint 192.0.2.2:50002
our_ping 10.9.0.2 -s 1000
their_transfer() { there wg show wg2 transfer | cut -f "$1"; }
sleep 0.5
expect "bytes we sent and they received" "$(sent h1 wg1)" "$(their_transfer 2)"
expect "bytes they sent and we received" "$(their_transfer 3)" "$(received h1 wg1)"

say "congestion marks: each side's marks arrive at the other"
rule h1 out udp dport 50002 ip ecn ect0 ip ecn set ce
rule h1 in udp dport 50001 ip ecn ect0 ip ecn set ce
count h1 in marked iifname wg1 ip ecn ce
their_ping 10.9.0.1 -Q 0x02
# Our answers carry the mark that their pings arrived with, and it goes out as ECT(0).
expect "their pings that came out with CE" 3 "$(counted h1 marked)"
unblock h1

say "our doctor, top and metrics look at the module's tunnel"
found() { guest "linerate doctor wg2 --json" | sed -n 's/.*"id": "\(.*\)",/\1/p' || true; }
expect "what doctor finds where nothing is wrong" "" "$(found)"
there wg set wg2 peer "$(public ours)" allowed-ips 10.9.0.1/32,fd09::1/128,10.99.0.0/16
expect "what doctor finds of an allowed IP without a route" route-missing "$(found)"
there wg set wg2 peer "$(public ours)" allowed-ips 10.9.0.1/32,fd09::1/128
expect "answers of top with rates" 1 "$(guest linerate top wg2 --json -n 2 -d 0.5 | grep -c '"implementation":"kernel".*"rates":{"received":')"
expect "received bytes in metrics" "$(their_transfer 2)" \
  "$(guest linerate metrics | sed -n 's/^wireguard_received_bytes_total{interface="wg2",.*} //p')"

say "our wg asks and changes the module as the original does"
guest 'ln -s /sbin/linerate /tmp/wg; for i in 3 4; do ip link add wg$i type wireguard; done'
guest "{ echo '[Interface]'; echo FwMark=7; echo PrivateKey=\$(wg genkey)
  for i in \$(seq 300); do
    echo '[Peer]'; echo PublicKey=\$(printf '%032d' \$i | base64); echo Endpoint=[2001:db8::\$i]:\$i
    echo AllowedIPs=10.\$((i / 256)).\$((i % 256)).0/24; echo PersistentKeepalive=\$i; echo PresharedKey=\$(wg genpsk)
  done
  for i in \$(seq 3000); do echo AllowedIPs=fd00:\$i::/32; done; } >/tmp/many
  sed -n 1,3p /tmp/many >/tmp/none
  sed -n '1,3p;100,141p' /tmp/many >/tmp/few"
their_wg() { guest "wg ${*//@/wg3} 2>&1; echo exit \$?; wg show wg3 dump"; }
our_wg() { guest "/tmp/wg ${*//@/wg4} 2>&1; echo exit \$?; wg show wg4 dump"; }
alike() { # ARGUMENT... : @ is the interface; the same is said, and the same comes of it
  local theirs ours
  theirs=$(their_wg "$@")
  ours=$(our_wg "$@")
  [[ $theirs == "$ours" ]] || fail "wg $*: $(diff <(echo "$theirs") <(echo "$ours") | head -n 20)"
  say "wg $*: alike ($(wc -l <<<"$ours") lines)"
}
# A port, and the key of the device's own, would be two's.
alike set @ private-key "$WORK/theirs.key" fwmark 0x10
alike set @ peer "$(public ours)" endpoint 192.0.2.9:5 allowed-ips 10.0.0.1/24,fd00::/64 persistent-keepalive 25 preshared-key "$WORK/shared.psk"
alike set @ peer "$(public theirs)" allowed-ips 10.3.0.0/16
alike set @ peer "$(public ours)" preshared-key /dev/null allowed-ips 0.0.0.0/0 peer "$(printf '%032d' 7 | base64)"
alike showconf @
for file in many few none many; do
  alike setconf @ /tmp/$file
  alike show @ dump
  alike showconf @
done
alike syncconf @ /tmp/few
alike addconf @ /tmp/many
alike set @ peer "$(printf '%032d' 7 | base64)" remove
alike set @ listen-port 50002
for command in "show lo" "show wg9" "set lo fwmark 1" "set wg9 fwmark 1" "showconf lo" "set @ fwmark 0"; do
  # shellcheck disable=SC2086
  alike $command
done
for arguments in "show interfaces" "show all fwmark" "show wg4" "show wg2 latest-handshakes" "show all peers"; do
  expect "wg $arguments" "$(guest "wg $arguments" | md5sum)" "$(guest "/tmp/wg $arguments" | md5sum)"
done
expect "linerate show of a tunnel of the kernel's" "$(guest wg show wg4 transfer | md5sum)" "$(guest linerate show wg4 transfer | md5sum)"
expect "peers in the JSON of a tunnel of the kernel's" 299 "$(guest linerate show wg4 --json | grep -c '"allowedIps"')"
# Taking away one allowed IP is newer than this module, which must not do something else.
expect "one allowed IP less" "Unable to modify interface: Invalid argument" "$(guest "/tmp/wg set wg4 peer $(public ours) allowed-ips -10.0.0.0/8 2>&1" || true)"
guest 'ip link del wg3; ip link del wg4'

say "our wg-quick brings up a tunnel of the module's, and takes it down without a trace"
guest "mkdir -p /etc/wireguard; chmod 700 /etc/wireguard; umask 077; { echo '[Interface]'; echo PrivateKey=\$(wg genkey)
  echo 'Address = 10.8.0.1/24, fd08::1/64'; echo 'PostUp = ip link show %i >/tmp/hook'; echo 'FwMark = 7'
  echo '[Peer]'; echo PublicKey=$(public ours); echo 'AllowedIPs = 10.8.0.0/24, 10.66.0.0/16'; } >/etc/wireguard/wg5.conf
  ln -s /sbin/linerate /tmp/wg-quick; ip -o route show table all | sort >/tmp/before"
guest /tmp/wg-quick --kernel up wg5
expect "the kind of link" 1 "$(guest 'ip -d link show wg5' | grep -c wireguard)"
expect "its addresses" "10.8.0.1/24 fd08::1/64" "$(guest 'ip -o addr show dev wg5 scope global' | awk '{ printf sep $4; sep = " " }')"
expect "its route" 1 "$(guest 'ip route show dev wg5' | grep -c 10.66.0.0/16)"
expect "its mark" 0x7 "$(guest wg show wg5 fwmark)"
expect "the hook saw it" 1 "$(guest 'cat /tmp/hook' | grep -c wg5)"
guest "sed -i 's/10.66/10.67/' /etc/wireguard/wg5.conf; linerate reload wg5"
expect "its route after a reload" 1 "$(guest 'ip route show dev wg5' | grep -c 10.67.0.0/16)"
expect "its peer's prefixes after a reload" "10.8.0.0/24 10.67.0.0/16" "$(guest wg show wg5 allowed-ips | cut -f 2)"
guest WG_QUICK_BACKEND=kernel /tmp/wg-quick down wg5
expect "what is left" "" "$(guest 'ip -o route show table all | sort | diff /tmp/before - ; ip link | grep wg5' || true)"

say "a rekey after two minutes, with traffic all the time"
before=$(handshake_time h1 wg1)
on h1 ping -n -q -i 0.25 -c 500 -W 3 10.9.0.2 >"$WORK/steady" 2>&1 || true
expect_at_least "answers to 500 pings across the rekey" 499 "$(awk '/received/ { print $4 }' "$WORK/steady")"
expect_at_least "seconds between the two handshakes" 119 $(($(handshake_time h1 wg1) - before))
