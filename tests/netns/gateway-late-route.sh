#!/usr/bin/env bash
# timeout: 120
# With Gateway = auto a gateway follows the host's default routes: where none was there at `up`, and where they move.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"

need nft
gateway_hosts
cable h1 up1 inet i1
address h1 up1 203.0.114.1/24 2001:db8:114::1/64
address inet i1 203.0.114.9/24 2001:db8:114::9/64
no_defaults() {
  ip -n h1 route flush default
  ip -n h1 -6 route flush default
}
defaults() { # DEVICE NETWORK : over that one
  ip -n h1 route replace default via "203.0.$2.9" dev "$1"
  ip -n h1 -6 route replace default via "2001:db8:$2::9" dev "$1"
}
forward() { # UP0 UP1 : their forwarding
  [[ "$(sysctl_of net.ipv4.conf.up0.forwarding) $(sysctl_of net.ipv4.conf.up1.forwarding)" == "$*" ]]
}
follows() { # WHEN UP0 UP1 : it forwards so, and clients reach the internet
  wait_for 10 "$1: forwarding of up0 and up1 to be $2 and $3" forward "$2" "$3"
  wait_for 5 "$1: a table to have it" eval '[[ $(on h1 nft list set inet linerate_gateway-wg1 gateways) == *up* ]]'
  pings c1 198.18.0.1
  pings c2 2001:db8:18::1
}
rests() { # PID : longer than it waits for routes to be complete
  local before
  before=$(wakeups "$1")
  sleep 3
  [[ $(wakeups "$1") == "$before" ]]
}
no_defaults
gateway_file "#! Gateway = auto" "#! Masquerade = both"
sysctls >"$WORK/sysctls"
for who in background service; do
  if [[ $who == service ]]; then
    nsenter --net=/run/netns/h1 "$LINERATE" up --supervise wg1 >"$WORK/said" 2>&1 &
    supervisor=$!
    wait_for 10 "the tunnel to be up" ledger_complete wg1
  else
    good linerate up wg1
    supervisor=$(supervisor_of wg1)
  fi
  said "$who" "no default route, so nothing is forwarded until it has one"
  new_sessions
  pings c1 10.9.0.1
  no_ping c1 198.18.0.1
  defaults up0 113
  follows "$who: the first default route" 1 0
  session=$(handshake_time h1 wg1 c1)

  defaults up1 114
  follows "$who: over another interface" 0 1
  expect "the session is the same" "$session" "$(handshake_time h1 wg1 c1)"

  say "$who: a moment without one, and routes of others, change nothing"
  # A service reads the state of its tunnel now and then.
  [[ $who == service ]] || wait_for 30 "the supervisor not to wake for 3 s" rests "$supervisor"
  before=$(wakeups "$supervisor")
  no_defaults
  ip -n h1 route add 10.99.0.0/16 via 203.0.113.9
  ip -n h1 route del 10.99.0.0/16
  sleep 2
  forward 0 1 || fail "up0 and up1 forward otherwise without default routes"
  [[ $who == service ]] || note "wake-ups by a lost default route and two others: $(($(wakeups "$supervisor") - before))"

  say "$who: an interface that is made anew"
  ip -n h1 link del up1
  cable h1 up1 inet i1
  address h1 up1 203.0.114.1/24 2001:db8:114::1/64
  address inet i1 203.0.114.9/24 2001:db8:114::9/64
  defaults up1 114
  follows "$who: made anew" 0 1

  no_defaults
  if [[ $who == service ]]; then
    kill "$supervisor"
    wait "$supervisor" || fail "the supervisor ended with $?"
  else
    good linerate down wg1
  fi
  is_gone wg1
  sysctls >"$WORK/sysctls-after"
  diff "$WORK/sysctls" "$WORK/sysctls-after" || fail "$who: sysctls are not as they were"
  expect "$who: tables" "" "$(on h1 nft list tables)"
done
