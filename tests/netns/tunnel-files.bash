# Words for scenarios about the files of tunnels, sourced after lib.sh: three tools bring up what /etc/wireguard says,
# and what they leave of a host is compared.
#
#   original    the installed wg-quick, with wireguard-go or the program $ENGINE as its daemon
#   wg-quick    ours under that name
#   linerate    ours with its own verbs
#
# h1 is the host whose files these are; h2 runs the other end, wg2. /etc is the scenario's own copy, with an empty
# /etc/wireguard, an empty /etc/resolv.conf and a short /etc/hosts.

# The files that programs write beside /etc/resolv.conf must not meet those of other scenarios.
mkdir "$WORK/host-etc"
cp -a /etc/. "$WORK/host-etc" 2>/dev/null || true # an ordinary user cannot read all of it
mount --bind "$WORK/host-etc" /etc
mount -t tmpfs -o mode=0700 tmpfs /etc/wireguard 2>/dev/null || skip "there is no /etc/wireguard to put a tmpfs on"
# The original turns to a daemon only where the kernel has no WireGuard. This hides the kernel's, where there is one.
# (`ip netns exec` would mount a new /sys, so everything on h1 is run with nsenter.)
mount -t tmpfs tmpfs /sys/module
own_file() { # PATH <TEXT : puts a file of the scenario's own in its place
  local copy=$WORK/etc/${1##*/}
  mkdir -p "$WORK/etc"
  cat >"$copy"
  [[ -e $1 ]] || skip "there is no $1 to replace"
  mount --bind "$copy" "$1"
}
own_file /etc/resolv.conf </dev/null
own_file /etc/hosts <<<"127.0.0.1 localhost"
own_file /etc/nsswitch.conf <<<"hosts: files"

mkdir "$WORK/bin"
cat >"$WORK/bin/ip" <<IP
#!/bin/bash
[[ "\$*" == "link add "*" type wireguard" ]] && exit 2
exec $(type -P ip) "\$@"
IP
chmod +x "$WORK/bin/ip"
ENGINE=${ENGINE:-wireguard-go}
has_original() { type -P wg-quick >/dev/null && type -P "$ENGINE" >/dev/null; }
has_original && cp "$(type -P wg-quick)" "$WORK/bin/wg-quick" # it puts its own folder first in PATH

at() { nsenter --net="/run/netns/$1" "${@:2}"; } # HOST COMMAND... : with the /sys of this scenario
# The daemon of an interface that is ready, the latest if one before it is about to end. It leads a session then; the
# process that started it, which has the same command line and ends a moment later, does not.
daemon_of() { # IFACE
  ps -eww --sort=start_time -o pid=,sid=,args= | awk -v iface="$1" '
    $1 == $2 && $3 ~ /(^|\/)linerated$/ && $NF == iface { pid = $1 }
    END { if (!pid) exit 1; print pid }'
}
no_daemon() { ! daemon_of "$1"; }
# The one in the background. The oldest, since a child has the same command line before exec.
supervisor_of() { pgrep -o -f "linerate supervise (-- )?$1\$"; } # IFACE
ledger_complete() { grep -q '"complete": true' "/run/linerate/$1.json"; } # IFACE : `up` is done

TURN_LIMIT=60 # seconds that a command may take

# The command that is WHO's for a verb, run on h1: its words are in $WORK/said, its status in $STATUS.
turn() { # WHO VERB NAME [OPTION...]
  STATUS=0
  started_turn "$@" >"$WORK/said" 2>&1 || STATUS=$?
  { echo "--- $*: $STATUS" && cat "$WORK/said"; } >>"$SCENARIO_LOGS/said.log"
}
started_turn() { # as turn, for use in the background
  local who=$1 verb=$2
  shift 2
  case $who in
    original) WG_QUICK_USERSPACE_IMPLEMENTATION=$ENGINE PATH=$WORK/bin:$PATH at h1 timeout "$TURN_LIMIT" "$WORK/bin/wg-quick" "$verb" "$@" ;;
    wg-quick) at h1 timeout "$TURN_LIMIT" "$LINERATE" wg-quick "$verb" "$@" ;;
    linerate) at h1 timeout "$TURN_LIMIT" "$LINERATE" "$verb" "$@" ;;
  esac
}
good() { # WHO VERB NAME [OPTION...]
  turn "$@"
  ((STATUS == 0)) || fail "$*: ended with $STATUS: $(tail -n 5 "$WORK/said" | tr '\n' ' ')"
  say "$*: ok"
}
bad() { # WHO VERB NAME [OPTION...]
  turn "$@"
  ((STATUS != 0)) || fail "$*: expected a failure, it succeeded: $(tail -n 5 "$WORK/said" | tr '\n' ' ')"
  say "$*: ended with $STATUS"
}
said() { # WHAT PATTERN : among the words of the last turn
  grep -qE -- "$2" "$WORK/said" || fail "$1: expected words like '$2', saw: $(tail -n 5 "$WORK/said" | tr '\n' ' ')"
  say "$1: $(grep -E -- "$2" "$WORK/said" | head -n 1)"
}

has_link() { ip -n h1 link show "$1" >/dev/null 2>&1; } # IFACE
no_link() { ! has_link "$1"; }
# The last word of wg-quick is a moment ahead of the end of a daemon.
is_gone() { # IFACE
  wait_for 5 "$1 to go" no_link "$1"
  wait_for 5 "the socket of $1 to go" eval "[[ ! -e /run/wireguard/$1.sock ]]"
}

# Two bad ends of wg1 on h1: its daemon's, and that of an `up' in the middle of its last step, with its daemon.
kill_daemon() {
  local pids
  mapfile -t pids < <(pgrep -f "linerated wg1\$")
  kill -KILL "${pids[@]}"
  wait_for 30 "the interface to go" no_link wg1
  # It goes before the port is free.
  wait_for 30 "the daemon to be gone" are_over "${pids[@]}"
}
are_over() { # PID...
  local pid
  for pid; do [[ ! -e /proc/$pid/status ]] || grep -q '^State:.Z' "/proc/$pid/status" || return 1; done
}
kill_up() { # WHO
  sed -i "s|^Address|PostUp = touch $WORK/runs; sleep 1000\n&|" /etc/wireguard/wg1.conf
  { started_turn "$1" up wg1 >"$WORK/said" 2>&1 || true; } &
  wait_for 10 "PostUp to run" test -e "$WORK/runs"
  pkill -KILL -f "^$LINERATE.* up wg1"
  wait_for 5 "the command of PostUp to end" pkill -x sleep # the shell may not have started it yet
  wait $!
  kill_daemon
  rm "$WORK/runs"
  sed -i /^PostUp/d /etc/wireguard/wg1.conf
}

# All of h1 that a tunnel changes and has to leave as it was, but for files that are only locks.
state() {
  ip -n h1 -br addr
  ip -n h1 -4 route show table all
  ip -n h1 -6 route show table all
  ip -n h1 -4 rule show
  ip -n h1 -6 rule show
  on h1 nft -s list ruleset
  cat /etc/resolv.conf
  find /run/linerate /run/wireguard -not -name '*lock' -not -name '*.supervisor' -not -name routing-ids -type f,s -not -name wg2.sock -not -name wg4.sock 2>/dev/null | sort || true
}
remember() { state >"$WORK/before"; }
as_before() { # WHEN
  state >"$WORK/after"
  diff "$WORK/before" "$WORK/after" >"$WORK/difference" || fail "$1: the host is not as it was: $(tr '\n' ' ' <"$WORK/difference")"
  say "$1: the host is as it was"
}

# The file of an interface on h1, whose one peer is h2: with these allowed IPs, and more lines for [Interface].
tunnel_file() { # IFACE ALLOWED-IPS [LINE...]
  (umask 077 && cat >"/etc/wireguard/$1.conf") <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.9.0.1/24, fd09::1/64
$(printf '%s\n' "${@:3}")
[Peer]
PublicKey = $(public h2)
Endpoint = ${ENDPOINT:-192.0.2.2:50002}
AllowedIPs = $2
CONF
}

# h1 and h2 on one cable, as two_hosts has them; h2 listens. A LAN is on the other side of h1, with one host on it.
hosts_with_files() {
  two_hosts
  host lan
  lan
  far_end
}
lan() {
  cable h1 lan1 lan lan2
  address h1 lan1 192.168.77.1/24 fd77::1/64
  address lan lan2 192.168.77.2/24 fd77::2/64
}

# h1 anew, whatever became of it.
new_h1() {
  local link
  for link in $(ip -n h1 -o link show type tun | awk -F': ' '{ print $2 }'); do
    ip -n h1 link delete "$link"
    is_gone "$link"
  done
  ip -n h1 link delete e1
  ip -n h1 link delete lan1
  ip netns delete h1
  rm -rf /run/linerate
  : >"$WORK/etc/resolv.conf"
  host h1
  cable h1 e1 h2 e2
  address h1 e1 192.0.2.1/24 2001:db8::1/64
  address h2 e2 192.0.2.2/24 2001:db8::2/64
  lan
}
