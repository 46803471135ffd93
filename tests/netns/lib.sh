# The words in which the scenarios of this folder are written. A scenario sources this file first:
#
#   source "$(dirname "$0")/lib.sh"
#
# Sourcing it re-executes the scenario inside a sandbox of its own: a mount, a PID and a network namespace.
#   - /run is an empty tmpfs there, so namespace names (/run/netns) and UAPI sockets (/run/wireguard) belong
#     to this scenario alone, and any number of scenarios and runs can stand side by side;
#   - the scenario is process 1 of its PID namespace, so when it ends, however it ends, the kernel ends every
#     process it started, and with them the namespaces, links and TUN devices. There is nothing to clean up.
#   - without root it adds a user namespace, where the machine allows that.
#
# UAPI sockets have the interface's name, and the hosts of one scenario share /run/wireguard: so the
# interface on h1 is wg1, on h2 wg2, and so on.
#
# Environment:
#   PROGRAMS        the folder that cargo built the programs into (target/debug)
#   EXAMPLES        the folder of what scenarios use besides (target/debug/examples)
#   TUNNEL_DAEMON   the daemon under test ($PROGRAMS/linerated)
#   LINERATE        the tool ($PROGRAMS/linerate)
#   SCENARIO_LOGS   folder for this scenario's logs (target/scenarios/FOLDER/NAME)
#   LINERATE_SECCOMP   what a system call does that linerated has no use for (kill: it ends the daemon and is seen)

set -eEuo pipefail
export LC_ALL=C

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
SCENARIO=$(basename "$(cd "$(dirname "$0")" && pwd)")/$(basename "$0" .sh)
# Absolute, as scenarios change directory.
PROGRAMS=$(realpath -m -- "${PROGRAMS:-${CARGO_TARGET_DIR:-$REPO/target}/debug}")
EXAMPLES=$(realpath -m -- "${EXAMPLES:-${CARGO_TARGET_DIR:-$REPO/target}/debug/examples}")
export PROGRAMS EXAMPLES
export TUNNEL_DAEMON=${TUNNEL_DAEMON:-$PROGRAMS/linerated}
export LINERATE=${LINERATE:-$PROGRAMS/linerate}
export SCENARIO_LOGS=${SCENARIO_LOGS:-$REPO/target/scenarios/$SCENARIO}
export LINERATE_SECCOMP=${LINERATE_SECCOMP:-kill}

# --- the sandbox -----------------------------------------------------------------------------------------

if [[ ${IN_SANDBOX:-} != "$0" ]]; then
  mkdir -p "$SCENARIO_LOGS"
  rm -f "$SCENARIO_LOGS"/{why,note,*.log}
  as_root=()
  ((EUID == 0)) || as_root=(--user --map-root-user)
  IN_SANDBOX=$0 exec unshare "${as_root[@]}" --mount --net --pid --fork --kill-child --mount-proc bash "$0" "$@"
fi

mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p /run/netns
WORK=/run/scenario
mkdir -m 700 "$WORK"
# Each scenario has a folder of its own for files that programs keep.
if mkdir -p -m 700 /var/lib/linerate 2>/dev/null; then mount -t tmpfs -o mode=0700 tmpfs /var/lib/linerate; fi

# --- verdicts --------------------------------------------------------------------------------------------

# The reason goes to the log and, for the runner's one line, to the file `why`. The first reason counts.
verdict() { # EXIT-CODE REASON
  echo "$2" >&2
  [[ -s $SCENARIO_LOGS/why ]] || printf '%s\n' "$2" >"$SCENARIO_LOGS/why"
  exit "$1"
}
fail() { verdict 1 "$*"; }
skip() { verdict 77 "$*"; }
trap 'fail "line ${BASH_LINENO[0]}: exit $? of: $BASH_COMMAND"' ERR
trap 'fail "out of time"' TERM
trap 'fail "interrupted"' INT

say() { echo "--- $*"; }
# A fact for the runner's line: figures that are measured and not judged.
note() { say "$*" && printf '%s\n' "$*" >>"$SCENARIO_LOGS/note"; }

expect() { # WHAT EXPECTED SEEN
  [[ $2 == "$3" ]] || fail "$1: expected $2, saw $3"
  say "$1: $3"
}
expect_at_least() { # WHAT FLOOR SEEN
  awk "BEGIN { exit !($3 >= $2) }" || fail "$1: expected at least $2, saw $3"
  say "$1: $3 (at least $2)"
}
expect_at_most() { # WHAT CEILING SEEN
  awk "BEGIN { exit !($3 <= $2) }" || fail "$1: expected at most $2, saw $3"
  say "$1: $3 (at most $2)"
}
expect_failure() { # WHAT COMMAND...
  local what=$1
  shift
  if "$@" >>"$SCENARIO_LOGS/expected-failures" 2>&1; then fail "$what: expected a failure, it succeeded: $*"; fi
  say "$what: refused"
}
# SECONDS is what a machine at rest needs at most; with others at work on it, four times as long may be right.
wait_for() { # SECONDS WHAT COMMAND... : polls until COMMAND succeeds
  local until=$((${EPOCHREALTIME/./} + $1 * 4000000)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    ((${EPOCHREALTIME/./} < until)) || fail "timed out waiting for: $what"
    sleep 0.05
  done
}
need() { # TOOL... : skips the scenario when one is missing
  local tool
  for tool; do type -P "$tool" >/dev/null || skip "$tool is not installed"; done
}
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# --- hosts and cables ------------------------------------------------------------------------------------

on() { ip netns exec "$@"; } # HOST COMMAND...

host() { # NAME... : a network namespace each
  local name
  for name; do
    ip netns add "$name"
    ip -n "$name" link set lo up
    # A new namespace inherits some settings from the machine; the scenarios start from the same ones.
    on "$name" sysctl -qw net.ipv4.conf.{all,default}.rp_filter=0 net.ipv4.ip_forward=0
    # The kernel looks for no routers: in a tunnel those packets have no peer, and wake a daemon that is at rest.
    on "$name" sysctl -qw net.ipv6.conf.{all,default}.{accept_dad,router_solicitations}=0 2>/dev/null || true
  done
}

cable() { # HOST DEVICE HOST DEVICE
  ip link add "$2" netns "$1" type veth peer name "$4" netns "$3"
  ip -n "$1" link set "$2" up
  ip -n "$3" link set "$4" up
}

address() { # HOST DEVICE ADDRESS/PREFIX...
  local at=$1 dev=$2 a
  shift 2
  for a; do
    if [[ $a == *:* ]]; then ip -n "$at" addr add "$a" dev "$dev" nodad; else ip -n "$at" addr add "$a" dev "$dev"; fi
  done
}

forwarding() { # HOST... : makes routers of them
  local name
  for name; do on "$name" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1; done
}

# h1 and h2 on one cable: e1 has 192.0.2.1 and 2001:db8::1, e2 has 192.0.2.2 and 2001:db8::2.
two_hosts() {
  host h1 h2
  cable h1 e1 h2 e2
  address h1 e1 192.0.2.1/24 2001:db8::1/64
  address h2 e2 192.0.2.2/24 2001:db8::2/64
}

# h1 - r - h2: h1 has 192.0.2.1 and 2001:db8::1 on e1, h2 has 198.51.100.2 and 2001:db8:2::2 on e2.
# The router's devices are r1 (towards h1) and r2 (towards h2).
routed_hosts() {
  host h1 r h2
  cable h1 e1 r r1
  cable r r2 h2 e2
  forwarding r
  address h1 e1 192.0.2.1/24 2001:db8::1/64
  address r r1 192.0.2.254/24 2001:db8::fe/64
  address r r2 198.51.100.254/24 2001:db8:2::fe/64
  address h2 e2 198.51.100.2/24 2001:db8:2::2/64
  ip -n h1 route add default via 192.0.2.254
  ip -n h1 -6 route add default via 2001:db8::fe
  ip -n h2 route add default via 198.51.100.254
  ip -n h2 -6 route add default via 2001:db8:2::fe
}

# --- tunnels ---------------------------------------------------------------------------------------------

declare -A PID=() # of the daemon of an interface

key() { # NAME... : a private key each, in the file $WORK/NAME.key
  local name
  for name; do (umask 077 && wg genkey >"$WORK/$name.key"); done
}
preshared() { (umask 077 && wg genpsk >"$WORK/$1.psk"); } # NAME : in the file $WORK/NAME.psk
public() { wg pubkey <"$WORK/$1.key"; } # NAME
hex() { base64 -d | od -An -v -tx1 | tr -d ' \n'; } # the key on standard input, in hexadecimal

answers() { # HOST IFACE
  # The original wg deletes a socket that refuses it, and a daemon's does for a moment between bind and listen.
  on "$1" grep -q " 00010000 .*/wireguard/.*$2" /proc/net/unix && on "$1" wg show "$2" >/dev/null 2>&1
}

daemon() { # HOST IFACE [PROGRAM [ARGUMENT...]] : starts the daemon (in the foreground form) and waits until it answers
  local at=$1 iface=$2
  shift 2
  (($#)) || set -- "$TUNNEL_DAEMON" -f
  type -P "$1" >/dev/null || fail "no daemon at $1 (cargo build, or set TUNNEL_DAEMON)"
  LOG_LEVEL=${LOG_LEVEL:-debug} ip netns exec "$at" "$@" "$iface" >>"$SCENARIO_LOGS/$iface.log" 2>&1 &
  PID[$iface]=$!
  wait_for 10 "$1 to answer for $iface on $at" answers "$at" "$iface"
}

# A daemon learns of the state of its link a moment after it changed.
link_down() { ip -n "$1" link set "$2" down && sleep 0.3; } # HOST IFACE
link_up() { ip -n "$1" link set "$2" up && sleep 0.2; }

# Removes the peers of an interface and configures them again as they were: whatever the daemon, no session is left.
forget() { # HOST IFACE
  local peer
  on "$1" wg showconf "$2" | awk '/^\[/ { keep = $1 == "[Peer]" } keep' >"$WORK/peers.conf"
  for peer in $(on "$1" wg show "$2" peers); do on "$1" wg set "$2" peer "$peer" remove; done
  on "$1" wg addconf "$2" "$WORK/peers.conf"
}

alive() { [[ -d /proc/${PID[$1]} ]] && ! grep -q '^State:.Z' "/proc/${PID[$1]}/status" 2>/dev/null; } # IFACE
gone() { ! alive "$1"; }
stop_daemon() { # IFACE
  kill "${PID[$1]}"
  wait_for 10 "the daemon of $1 to end" gone "$1"
}

wg_address() { # HOST IFACE ADDRESS/PREFIX... : addresses, MTU 1420, link up
  address "$@"
  # Without a link-local address the kernel does not look for routers through the tunnel, seconds apart and for ever
  # longer: no packet goes that a scenario did not send.
  ip -n "$1" link set "$2" addrgenmode none # in a command of its own: `up` would come first
  ip -n "$1" link set "$2" mtu 1420 up
  # A worker of the kernel gives an IPv6 address its route, without which packets to it are dropped.
  local a
  for a in "${@:3}"; do
    [[ $a != *:* ]] || wait_for 5 "the kernel to take in what is sent to $a" has_local_route "$1" "${a%/*}"
  done
}
has_local_route() { [[ $(ip -n "$1" -6 route get "$2") == local* ]]; } # HOST ADDRESS

# wg1 on h1 (port 50001, 10.9.0.1, fd09::1) and wg2 on h2 (port 50002, 10.9.0.2, fd09::2), peers of each other.
# Each knows the other's address, which is looked up on the device towards it: v4 or v6.
tunnel() { # [v4|v6|none, default v4]
  key h1 h2
  daemon h1 wg1
  daemon h2 wg2
  wire "$@"
}
wire() { # as tunnel, for daemons that run already
  on h1 wg set wg1 listen-port 50001 private-key "$WORK/h1.key" peer "$(public h2)" allowed-ips 10.9.0.2/32,fd09::2/128
  on h2 wg set wg2 listen-port 50002 private-key "$WORK/h2.key" peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128
  point "${1:-v4}"
  wg_address h1 wg1 10.9.0.1/24 fd09::1/64
  wg_address h2 wg2 10.9.0.2/24 fd09::2/64
  # A daemon opens its port a moment after its link is up. An initiation that comes before is sent again, but in 5 s.
  wait_for 5 "wg1 to open its port" listens_udp h1 50001
  wait_for 5 "wg2 to open its port" listens_udp h2 50002
}
# Only the end of h2, which waits for one on h1 that is not a daemon's of ours: wg2, as `tunnel' makes it.
far_end() {
  key h1 h2
  daemon h2 wg2
  on h2 wg set wg2 listen-port 50002 private-key "$WORK/h2.key" peer "$(public h1)" allowed-ips 10.9.0.1/32,fd09::1/128
  wg_address h2 wg2 10.9.0.2/24 fd09::2/64
  wait_for 5 "wg2 to open its port" listens_udp h2 50002
}
outer() { # HOST DEVICE v4|v6 : the first address there, as an endpoint writes it
  case $3 in
    v4) ip -n "$1" -o -4 addr show dev "$2" | awk '{ sub("/.*", "", $4); print $4; exit }' ;;
    v6) ip -n "$1" -o -6 addr show dev "$2" scope global | awk '{ sub("/.*", "", $4); print "[" $4 "]"; exit }' ;;
  esac
}
point() { # v4|v6|none : tells both ends where the other is
  [[ $1 == none ]] && return
  on h1 wg set wg1 peer "$(public h2)" endpoint "$(outer h2 e2 "$1"):50002"
  on h2 wg set wg2 peer "$(public h1)" endpoint "$(outer h1 e1 "$1"):50001"
}

# Of the peer of that name, or of the only one:
of_peer() { on "$1" wg show "$2" "$3" | awk -v key="${4:+$(public "$4")}" -v col="$5" '(key == "" || $1 == key) && !n++ { print $col }'; }
endpoint() { of_peer "$1" "$2" endpoints "${3:-}" 2; }                # HOST IFACE [NAME]
received() { of_peer "$1" "$2" transfer "${3:-}" 2; }                 # bytes
sent() { of_peer "$1" "$2" transfer "${3:-}" 3; }                     # bytes
handshake_time() { of_peer "$1" "$2" latest-handshakes "${3:-}" 2; }  # epoch seconds, 0 = never
uapi() { timeout 20 nc -NU "/run/wireguard/$1.sock"; }                                         # IFACE <REQUESTS >ANSWERS
cpu_ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }                                     # PID, 1/100 s
rss_kb() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }                                    # PID
peak_rss_kb() { awk '/^VmHWM/ { print $2 }' "/proc/$1/status"; }                               # PID
wakeups() { awk '/ctxt_switches/ { n += $2 } END { print n }' /proc/"$1"/task/*/status; }      # PID, all threads

# --- traffic ---------------------------------------------------------------------------------------------

pings() { # HOST ADDRESS [-c N] [PING OPTION...] : each of three must come back, or each of N; no others are sent
  local at=$1 to=$2 count=3 number
  shift 2
  [[ ${1:-} != -c ]] || { count=$2 && shift 2; }
  sleep 0.03 # a peer takes a second initiation only 20 ms after the first, and a fast machine has begun another by then
  # Several at once need a deadline, and with one ping sends others while an answer is late.
  for ((number = 1; number <= count; number++)); do
    on "$at" ping -n -c 1 -W 5 "$@" "$to" >"$WORK/ping" 2>&1 ||
      fail "ping from $at to $to $*: expected an answer to number $number, saw $(grep -h loss "$WORK/ping" || cat "$WORK/ping")"
  done
  say "ping from $at to $to $*: ok"
}
no_ping() { # HOST ADDRESS [PING OPTION...] : none may come back
  local at=$1 to=$2
  shift 2
  if on "$at" ping -n -q -c 1 -W 1 "$@" "$to" >/dev/null 2>&1; then fail "ping from $at to $to $*: expected no answer, one came"; fi
  say "ping from $at to $to $*: no answer, as it should be"
}

listens() { [[ -n $(on "$1" ss -Hltn "sport = :$2") ]]; } # HOST PORT (TCP)
listens_udp() { [[ -n $(on "$1" ss -Hlun "sport = :$2") ]]; }
port_closed() { ! listens_udp "$@"; }

# One iperf3 run from CLIENT to ADDRESS on SERVER; leaves the receiver's Mbit/s in $RATE.
# (A subshell could not end the scenario, so the answer is a variable and not standard output.)
iperf() { # CLIENT SERVER ADDRESS [IPERF3 OPTION...]
  local from=$1 to=$2 at=$3
  shift 3
  ip netns exec "$to" iperf3 -s -1 -B "$at" -p 5201 >"$SCENARIO_LOGS/iperf-server.log" 2>&1 &
  local server=$!
  wait_for 5 "iperf3 -s on $to" listens "$to" 5201
  ip netns exec "$from" timeout 40 iperf3 -c "$at" -p 5201 -f m -t 1 --connect-timeout 5000 "$@" >"$WORK/iperf" 2>&1 ||
    { cat "$WORK/iperf" >&2 && fail "iperf3 from $from to $at $*: $(tail -n 1 "$WORK/iperf")"; }
  wait "$server" 2>/dev/null || true
  cat "$WORK/iperf" >>"$SCENARIO_LOGS/iperf.log"
  RATE=$(awk '/receiver/ { for (i = 2; i <= NF; i++) if ($i == "Mbits/sec") r = $(i - 1) } END { print r + 0 }' "$WORK/iperf")
  say "iperf3 from $from to $at $*: $RATE Mbit/s"
}

# Sends FILE over TCP and expects it whole on the other side.
send_file() { # FROM TO ADDRESS FILE [SECONDS]
  rm -f "$WORK/arrived"
  ip netns exec "$2" timeout "${5:-60}" nc -l "$3" 7000 >"$WORK/arrived" </dev/null &
  local server=$!
  wait_for 5 "nc -l on $2" listens "$2" 7000
  ip netns exec "$1" timeout "${5:-60}" nc -N "$3" 7000 <"$4" || fail "sending a file from $1 to $3: nc ended with $?"
  wait "$server" || fail "receiving a file on $2: nc ended with $?"
  expect "sha256 of the file that arrived on $2" "$(sha256sum <"$4")" "$(sha256sum <"$WORK/arrived")"
}

datagram() { # HOST ADDRESS PORT : sends standard input as one UDP datagram
  on "$1" bash -c 'dd bs=65536 iflag=fullblock status=none >"/dev/udp/$0/$1"' "$2" "$3"
}

# --- looking at packets and dropping some, with nftables ----------------------------------------------------

rules() { # HOST : the table that the words below add to
  on "$1" nft list table inet scenario >/dev/null 2>&1 && return
  on "$1" nft -f - <<'NFT'
table inet scenario {
  chain in { type filter hook prerouting priority -300; }
  chain out { type filter hook postrouting priority 300; }
}
NFT
}
rule() { # HOST in|out RULE... : in sees what arrives on HOST, out what leaves it
  rules "$1"
  on "$1" nft add rule inet scenario "${@:2}"
}
count() { # HOST in|out NAME MATCH... : counts packets from here on
  rules "$1"
  on "$1" nft add counter inet scenario "$3"
  on "$1" nft insert rule inet scenario "$2" "${@:4}" counter name "$3"
}
counted() { on "$1" nft list counter inet scenario "$2" | awk '/packets/ { print $2 }'; } # HOST NAME
block() { rule "$@" drop; }                                                               # HOST in|out MATCH...
unblock() { on "$1" nft delete table inet scenario; }                                     # HOST : forgets its counters too
