# Daemons at work: the reference and ours leave them in the same state, and see it alike.

printf '%s\n' yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk= >device.key
printf '%s\n' ERERERERERERERERERERERERERERERERERERERERERE= >shared.key
cat >three.conf <<END
[Interface]
PrivateKey = $(<device.key)
ListenPort = 50001
FwMark = 0x1234
[Peer]
PublicKey = $P
PresharedKey = $(<shared.key)
AllowedIPs = 10.0.0.0/24, fd00::/64
Endpoint = 192.0.2.1:5
PersistentKeepalive = 25
[Peer]
PublicKey = $R
AllowedIPs = 10.0.1.7/24
Endpoint = [2001:db8::1]:5
[Peer]
PublicKey = //////////////////////////////////////////8=
AllowedIPs = 0.0.0.0/0
END
printf "[Interface]\nPrivateKey=$(<device.key)\nListenPort=50002\n[Peer]\nPublicKey=$R\nAllowedIPs=10.0.2.0/24\n" >one.conf

# The daemon begins anew for each of the two, and the reference tells what became of it. Peers may come in any order.
begin() {
  end
  "$DAEMON" -f real0 >"$PLACE/daemon.log" 2>&1 </dev/null &
  DAEMON_PID=$!
  local try
  for try in {1..200}; do
    [[ -S /run/wireguard/real0.sock ]] && "$REFERENCE" setconf real0 three.conf >"$PLACE/begin.log" 2>&1 && return
    sleep 0.02
  done
}
end() {
  [[ -z ${DAEMON_PID:-} ]] || { kill "$DAEMON_PID" && wait "$DAEMON_PID"; } 2>/dev/null
  DAEMON_PID=
}
look() {
  "$REFERENCE" show real0 dump | sort
  sort -o "$seen/out" "$seen/out"
}
real() { # TITLE ARGUMENT...
  BEFORE=begin AFTER=look
  same "$DAEMON_NAME: $1" "${@:2}"
}
devices
for DAEMON in wireguard-go "${LINERATED:-$(dirname "$LINERATE")/linerated}"; do
  DAEMON_NAME=$(basename "$DAEMON")
  if ! type -P "$DAEMON" >/dev/null || [[ ! -c /dev/net/tun ]]; then
    skipped=$((skipped + 1)) && echo "skip wg/$DAEMON_NAME - not here, or no /dev/net/tun"
    continue
  fi
  real "show" show real0
  real "dump" show all dump
  real "showconf" showconf real0
  real "the names" show interfaces
  real "set" set real0 listen-port 50003 fwmark off peer $P remove peer $Q allowed-ips 10.5.0.0/16 persistent-keepalive 7 preshared-key shared.key
  real "a preshared key less" set real0 peer $P preshared-key /dev/null allowed-ips ""
  real "a moved prefix" set real0 peer $R allowed-ips 10.0.0.0/24
  real "setconf" setconf real0 one.conf
  real "addconf" addconf real0 one.conf
  real "syncconf" syncconf real0 one.conf
  real "a whole file to a device without peers" syncconf real0 three.conf
done
end

# What the installed version cannot ask for.
title="wg/linerated: one allowed IP more and one less"
if [[ -x $DAEMON && -c /dev/net/tun ]] && chosen "$title"; then
  begin
  "$PLACE/ours/bin/wg" set real0 peer $P allowed-ips +10.9.0.0/16,-fd00::/64
  seen=$("$REFERENCE" show real0 allowed-ips | grep -F "$P" | cut -f 2 | tr ' ' '\n' | sort | xargs)
  [[ $seen == "10.0.0.0/24 10.9.0.0/16" ]] && verdict ok "$title" || verdict FAIL "$title: $seen"
  end
fi
