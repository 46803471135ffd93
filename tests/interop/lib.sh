# One tunnel between the daemon under test on h1 ("ours", wg1) and another implementation ("theirs", wg2), which is
# a daemon on the host h2 or the kernel's module in the emulated guest. Sourced by the scenarios of this folder.

source "$(dirname "${BASH_SOURCE[0]}")/../netns/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/vm/drive.sh"
need iperf3

PEERS=$REPO/target/peers/bin
THEIRS=()        # the command line of their daemon, without the interface; empty: the guest
CHANGES_PORT=yes # whether it survives a change of its port

their_daemon() { # PROGRAM [ARGUMENT...] : skips the scenario when it is not there
  type -P "$1" >/dev/null || skip "there is no ${1#"$REPO"/} (tests/interop/prepare)"
  THEIRS=("$@")
}
there() { if ((${#THEIRS[@]})); then on h2 "$@"; else guest "$*"; fi; } # COMMAND... : where they are

hosts() {
  if ((${#THEIRS[@]})); then
    two_hosts
  else
    host h1
    boot_guest h1 e1
    # The address of the guest's control channel is not one of the tunnel's.
    ip -n h1 addr flush dev e1
    address h1 e1 192.0.2.1/24 2001:db8::1/64 169.254.77.1/30
    guest 'ip addr add 192.0.2.2/24 dev eth0; ip addr add 2001:db8::2/64 dev eth0 nodad'
  fi
}

# The files of a scenario have the same path on both sides.
share() { # FILE...
  ((${#THEIRS[@]})) && return
  local file
  for file; do guest "mkdir -p $WORK; echo '$(cat "$file")' >$file"; done
}

start_ours() {
  [[ -z ${PID[wg1]:-} ]] || stop_daemon wg1
  daemon h1 wg1
  on h1 wg set wg1 listen-port 50001 private-key "$WORK/ours.key" peer "$(public theirs)" "$@" allowed-ips 10.9.0.2/32,fd09::2/128
  wg_address h1 wg1 10.9.0.1/24 fd09::1/64
}
start_theirs() {
  if ((${#THEIRS[@]})); then
    [[ -z ${PID[wg2]:-} ]] || stop_daemon wg2
    daemon h2 wg2 "${THEIRS[@]}"
  else
    guest 'ip link del wg2 2>/dev/null; ip link add wg2 type wireguard'
  fi
  there wg set wg2 listen-port 50002 private-key "$WORK/theirs.key" peer "$(public ours)" "$@" allowed-ips 10.9.0.1/32,fd09::1/128
  there ip addr add 10.9.0.2/24 dev wg2
  there ip addr add fd09::2/64 dev wg2 nodad
  there ip link set wg2 mtu 1420 up
}

our_ping() { pings h1 "$@"; }
their_ping() { # ADDRESS [PING OPTION...] : every one of three must come back
  there ping -n -q -c 3 -i 0.2 -W 3 "${@:2}" "$1" >"$WORK/ping" 2>&1 || true
  grep -q ' 0% packet loss' "$WORK/ping" || fail "their ping to $*: expected 0% packet loss, saw $(grep loss "$WORK/ping" || cat "$WORK/ping")"
  say "their ping to $*: ok"
}
their_ping_passes() { there ping -n -q -c 1 -W 1 "$1"; }
their_endpoint() { there wg show wg2 endpoints | cut -f 2; }

transfer() { # ADDRESS OF THEIRS [IPERF3 OPTION...] : leaves Mbit/s in $RATE
  local to=$1 try
  IPERF_PORT=$((${IPERF_PORT:-5200} + 1)) # a new one each time: the last server may still hold its own
  there iperf3 -s -1 -D -B "$1" -p $IPERF_PORT
  shift
  for try in {1..30}; do # it returns before it listens
    on h1 timeout 150 iperf3 -c "$to" -p $IPERF_PORT -f m -t 1 --connect-timeout 10000 "$@" >"$WORK/iperf" 2>&1 && break
    grep -q 'Connection refused' "$WORK/iperf" && ((try < 30)) || fail "iperf3 to $to $*: $(tail -n 1 "$WORK/iperf")"
    sleep 0.1
  done
  RATE=$(awk '/receiver/ { for (i = 2; i <= NF; i++) if ($i == "Mbits/sec") r = $(i - 1) } END { print r + 0 }' "$WORK/iperf")
  say "iperf3 to $to $*: $RATE Mbit/s"
  expect_at_least "Mbit/s" 0.1 "$RATE"
}

# Everything that is asked of a pair, but for the rekey after two minutes.
interop() {
  key ours theirs
  preshared shared
  hosts
  share "$WORK"/{ours.key,theirs.key,shared.psk}
  local outside psk first ours theirs
  for outside in v4 v6; do
    case $outside in
      v4) ours=192.0.2.1 theirs=192.0.2.2 ;;
      v6) ours='[2001:db8::1]' theirs='[2001:db8::2]' ;;
    esac
    for psk in "" "preshared-key $WORK/shared.psk"; do
      for first in ours theirs; do
        say "IP$outside outside, $([[ $psk ]] && echo with || echo without) a preshared key, $first speaks first"
        # Only the end that sends first knows the other's address.
        # shellcheck disable=SC2086
        if [[ $first == ours ]]; then
          start_theirs $psk
          start_ours $psk endpoint $theirs:50002
          our_ping 10.9.0.2
        else
          start_ours $psk
          start_theirs $psk endpoint "$ours:50001"
          their_ping 10.9.0.1
        fi
        our_ping 10.9.0.2 -s 1392
        our_ping fd09::2 -s 1372
        their_ping 10.9.0.1 -s 1392
        their_ping fd09::1 -s 1
        expect "endpoint of theirs" "$theirs:50002" "$(endpoint h1 wg1)"
      done
    done
    transfer 10.9.0.2
    transfer 10.9.0.2 -R
    transfer fd09::2 -P 4
    transfer fd09::2 -R
    transfer 10.9.0.2 -u -b 5M

    say "IP$outside outside: they move to another address, to another port, and then we do"
    local dev=e2 moved
    ((${#THEIRS[@]})) || dev=eth0
    case $outside in
      v4) moved=192.0.2.22 && there ip addr del 192.0.2.2/24 dev $dev && there ip addr add $moved/24 dev $dev ;;
      v6) moved='[2001:db8::22]' && there ip addr del 2001:db8::2/64 dev $dev && there ip addr add 2001:db8::22/64 dev $dev nodad ;;
    esac
    # Some keep the old address as their source until a timer clears it; what counts here is that we follow.
    wait_for 25 "their ping from another address" their_ping_passes 10.9.0.1
    expect "endpoint of theirs" "$moved:50002" "$(endpoint h1 wg1)"
    our_ping 10.9.0.2
    if [[ $CHANGES_PORT == yes ]]; then
      there wg set wg2 listen-port 50003
      their_ping 10.9.0.1
      expect "endpoint of theirs" "$moved:50003" "$(endpoint h1 wg1)"
      our_ping 10.9.0.2
    fi
    on h1 wg set wg1 listen-port 50011
    our_ping 10.9.0.2
    expect "endpoint of ours, as they see it" "$ours:50011" "$(their_endpoint)"
    their_ping 10.9.0.1

    case $outside in
      v4) there ip addr del 192.0.2.22/24 dev $dev && there ip addr add 192.0.2.2/24 dev $dev ;;
      v6) there ip addr del 2001:db8::22/64 dev $dev && there ip addr add 2001:db8::2/64 dev $dev nodad ;;
    esac

    say "IP$outside outside: a new session where one is still up, first by them and then by us"
    start_theirs preshared-key "$WORK/shared.psk" endpoint "$ours:50011"
    their_ping 10.9.0.1
    start_ours preshared-key "$WORK/shared.psk" endpoint "$theirs:50002"
    our_ping 10.9.0.2
    their_ping fd09::1
  done
}
