# Words for scenarios about `linerate run`, sourced after lib.sh: h1 is the host of an ordinary user with the tunnel `work`,
# h2 is the other end of it, answers names (every one has the address 10.9.0.2), and writes them into $WORK/names.

need setpriv perl
setpriv --reuid 1000 --regid 1000 --clear-groups true 2>/dev/null || skip "no right to become another user (run it as root)"

# A driver that every user may open, as where systemd is; programs, and a home, where that user gets to them.
mknod -m 666 "$WORK/tun" c 10 200 && mount --bind "$WORK/tun" /dev/net/tun
mknod -m 666 "$WORK/null" c 1 3 && mount --bind "$WORK/null" /dev/null
mkdir "$WORK/home" "$WORK/etc"
mount --bind "$PROGRAMS" /mnt
chmod 711 "$WORK"
own_file() { # PATH <TEXT : puts a file of the scenario's own in its place
  cat >"$WORK/etc/${1##*/}"
  [[ -e $1 ]] || skip "there is no $1 to replace"
  mount --bind "$WORK/etc/${1##*/}" "$1"
}
# What the host would ask: a server at h2's outer address.
own_file /etc/resolv.conf <<<"nameserver 192.0.2.2"
own_file /etc/nsswitch.conf <<<"hosts: files dns"

two_hosts
far_end

config=$WORK/home/.config/linerate/work.conf
tunnel_file() { # [LINE OF [Interface]...] : the file of `work`
  mkdir -p "${config%/*}"
  cat >"$config" <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.9.0.1/24, fd09::1/64
$(printf '%s\n' "$@")
[Peer]
PublicKey = $(public h2)
AllowedIPs = 0.0.0.0/0, ::/0
Endpoint = ${ENDPOINT:-192.0.2.2:50002}
CONF
  chown -R 1000:1000 "$WORK/home"
  chmod 600 "$config"
}
tunnel_file "DNS = 10.9.0.2, corp.example"

case $(uname -m) in # the numbers of system calls, for perl
  x86_64) prctl=157 unshare=272 ioctl=16 ;;
  aarch64) prctl=167 unshare=97 ioctl=29 ;;
esac
# A command under a filter of system calls, as in containers: of CALL fails with ERRNO what has VALUE as its argument.
# shellcheck disable=SC2016
filter='
  my ($prctl, $call, $argument, $value, $errno) = splice(@ARGV, 0, 5);
  # The number of the call, and the argument; SECCOMP_RET_ERRNO, else SECCOMP_RET_ALLOW.
  my $code = pack("(S C C L)*", 0x20, 0, 0, 0, 0x15, 0, 3, $call, 0x20, 0, 0, 16 + 8 * $argument, 0x15, 0, 1, $value,
    0x06, 0, 0, 0x00050000 | $errno, 0x06, 0, 0, 0x7fff0000);
  syscall($prctl, 38, 1, 0, 0, 0) == 0 or die "no_new_privs: $!";
  syscall($prctl, 22, 2, pack("S x6 P", 6, $code), 0, 0) == 0 or die "seccomp: $!";
  exec @ARGV or die "exec: $!";'
without() { FILTERED=(perl -e "$filter" $prctl "$@"); } # CALL ARGUMENT VALUE ERRNO
no_namespaces() { without $unshare 0 $((0x10000000)) 1; } # EPERM for CLONE_NEWUSER
# In the place of the process that is started, so that its number is the command's.
as_user=(nsenter --net=/run/netns/h1 setpriv --reuid 1000 --regid 1000 --clear-groups env "HOME=$WORK/home" XDG_CONFIG_HOME=)
tool=/mnt/linerate
run() { "${as_user[@]}" "$tool" run "$@"; } # NAME COMMAND...
status() { # COMMAND... : its exit code in $STATUS, its words in $WORK/said
  STATUS=0
  timeout 30 "$@" >"$WORK/said" 2>&1 || STATUS=$?
}
run_status() { # ...; a peer takes a second initiation only 20 ms after the first, and a fast machine has begun another by then
  sleep 0.05
  status "${as_user[@]}" "$tool" run "$@"
}
said() { grep -qE "$1" "$WORK/said" || fail "expected it to say \`$1', it said: $(cat "$WORK/said")"; } # PATTERN

daemons() { pgrep -f 'linerated work$' || true; }
no_daemons() { [[ -z $(daemons) ]]; }
nothing_left() {
  wait_for 10 "the daemon to end" no_daemons
  expect "interfaces of h1" "e1 lo" "$(ip -n h1 -o link | awk -F'[ @:]+' '{ print $2 }' | sort | xargs)"
  expect "sockets" "wg2.sock" "$(ls /run/wireguard)"
  expect "files of the user" "$config" "$(find "$WORK/home" /var/tmp -user 1000 -type f 2>/dev/null)"
  # One that has ended may not have been waited for yet.
  expect "processes of the user" "" "$(pgrep -u 1000 -r D,I,R,S,T,t -a || true)"
}

answer_names() {
  : >"$WORK/names"
  nsenter --net=/run/netns/h2 perl -MIO::Socket::INET -e '
    $| = 1;
    my $socket = IO::Socket::INET->new(LocalAddr => "10.9.0.2", LocalPort => 53, Proto => "udp") or die "bind: $!";
    while (defined $socket->recv(my $question, 512)) {
      my $end = index($question, "\0", 12) + 1;
      my ($type) = unpack("n", substr($question, $end, 2));
      my @labels = unpack("(C/a)*", substr($question, 12, $end - 13));
      print join(".", @labels), "\n";
      my $answer = $type == 1 ? pack("n3 N n C4", 0xc00c, 1, 1, 60, 4, 10, 9, 0, 2) : "";
      my $header = pack("a2 n5", $question, 0x8180, 1, $type == 1 ? 1 : 0, 0, 0);
      $socket->send($header . substr($question, 12, $end - 12 + 4) . $answer);
    }' >>"$WORK/names" &
  wait_for 5 "the name server" listens_udp h2 53
}

# From here on all that leaves h1 outside of the tunnel: no datagram of the tunnel, nor an error about one that comes when it
# has ended; no neighbour discovery, no multicast membership.
capture() {
  ip netns exec h1 tcpdump -i e1 -Q out -U -w "$WORK/capture" \
    'not udp port 50002 and not (icmp and icmp[0] = 3) and not arp and not (icmp6 and ip6[40] != 128) and not (ip6 and ip6[6] = 0)' 2>"$WORK/tcpdump" &
  wait_for 5 "tcpdump" grep -q listening "$WORK/tcpdump"
  # It would see a packet:
  on h1 ping -n -c 1 -W 5 192.0.2.2 >/dev/null
  wait_for 5 "the capture to see a ping" captured_are 1
}
captured() { tcpdump -n -r "$WORK/capture" 2>/dev/null | wc -l; }
captured_are() { (($(captured) == $1)); } # COUNT
nothing_escaped() { expect "packets outside of the tunnel, but for the probe's: $(tcpdump -n -r "$WORK/capture" 2>/dev/null | tail -n +2 | head -n 3)" 1 "$(captured)"; }
