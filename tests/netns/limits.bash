# Words for scenarios about limits of peers, sourced after lib.sh: wg1 on h1 is the server, wg2 on h2 its client.

source "$(dirname "$0")/faults.bash"

export LINERATE_USAGE=$WORK/usage

limits() { # NAME LINE... : of the client with that key
  local answer
  answer=$({ printf 'set=1\npublic_key=%s\n' "$(public "$1" | hex)" && printf '%s\n' "${@:2}" && echo; } | uapi wg1)
  [[ $answer == errno=0 ]] || fail "limits ${*:2}: $answer"
}
limit() { printf 'get=1\n\n' | uapi wg1 | sed -n "s/^$1=//p"; } # KEY : of the only client
is_suspended() { [[ $(limit suspended) == "$1" ]]; }             # expired|quota
epoch() { date +%s; }
server() { # [PROGRAM...] : starts the server as it was configured before, with the limits of $@
  daemon h1 wg1 "$@"
  on h1 wg set wg1 listen-port 50001 private-key "$WORK/h1.key" peer "$(public h2)" allowed-ips 10.9.0.2/32,fd09::2/128
  wg_address h1 wg1 10.9.0.1/24 fd09::1/64
  wait_for 5 "wg1 to open its port" listens_udp h1 50001
}
kill_server() {
  kill -KILL "${PID[wg1]}"
  wait_for 5 "the daemon to end" gone wg1
  wait_for 5 "its interface to go" eval '! ip -n h1 link show wg1 2>/dev/null'
}
renewed() { # the client starts over: it does not wait for its own timers
  link_down h2 wg2
  link_up h2 wg2
  address h2 wg2 fd09::2/64
}
