#!/usr/bin/env bash
# timeout: 120
# The uplink is renamed, while it is up or between two starts, or is unplugged and plugged in again, like a USB stick. Clients
# reach the internet again, with `Gateway = auto` and with a name. A missing interface is reported, and the remedy works.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
source "$(dirname "$0")/doctor.bash"
need jq nft

internet
laptop() { at laptop timeout 60 "$LINERATE" "$1" "$WORK/wg9.conf" >>"$SCENARIO_LOGS/said.log" 2>&1; } # VERB
reaches() { # WHAT : the internet, over both families
  local to
  for to in 198.51.100.2 2001:db8:3::2; do
    wait_for 10 "$1: the laptop to reach $to" at laptop ping -n -c 1 -W 1 "$to"
  done
  say "$1: the laptop reaches the internet"
}
routes() { # DEVICE
  address h1 "$1" 2001:db8:1::5/64
  ip -n h1 route replace default via 203.0.113.1 dev "$1"
  ip -n h1 -6 route replace default via 2001:db8:1::1 dev "$1"
}
renamed() { # FROM TO : with the link down, which takes its routes and its addresses of IPv6
  ip -n h1 link set "$1" down
  ip -n h1 link set "$1" name "$2"
  ip -n h1 link set "$2" up
  routes "$2"
}
plugged() { # DEVICE : anew
  cable h1 "$1" inet i1
  address inet i1 203.0.113.1/24 2001:db8:1::1/64
  address h1 "$1" 203.0.113.5/24
  routes "$1"
}
gateway() { sed -i "s/^#! Gateway.*/#! Gateway = $1/" /etc/wireguard/wg0.conf; } # INTERFACE
restarted() { # BETWEEN... : the server, and the laptop, which would use its old session else
  laptop down
  good linerate down wg0
  "$@"
  good linerate up wg0
  cp "$WORK/said" "$WORK/of-up"
  laptop up
}

server init
good linerate client add laptop --output "$WORK/wg9.conf"
sed -i /^DNS/d "$WORK/wg9.conf"
laptop up
reaches "at first"

say "Gateway = auto"
if ip -n h1 link set e1 name ens18 2>"$WORK/refused"; then
  reaches "another name while it is up"
  healthy "another name while it is up" h1 wg0
  renamed ens18 e1
else
  note "the kernel renames no link that is up"
fi
reaches "another name while it was down"
ip -n h1 link delete e1
plugged e1
reaches "gone and back"
ip -n h1 link delete e1
plugged usb0
reaches "gone and back with another name"
healthy "gone and back with another name" h1 wg0
restarted renamed usb0 eth0
reaches "another name at the next start"

say "Gateway = eth0"
gateway eth0
restarted true
reaches "a name"
ip -n h1 link delete eth0
finds "a name that is gone" h1 wg0 gateway-interface-missing
plugged eth0
reaches "gone and back"
healthy "gone and back" h1 wg0
restarted renamed eth0 ens18
grep -q "no interface eth0.*Gateway = auto" "$WORK/of-up" || fail "up does not say that the name is gone: $(cat "$WORK/of-up")"
good linerate client add tablet --output "$WORK/tablet.conf"
said "the missing interface" "no interface eth0.*Gateway = auto"
no_ping laptop 198.51.100.2
gateway auto
good linerate reload wg0
reaches "Gateway = auto instead of the name"
