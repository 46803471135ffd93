#!/usr/bin/env bash
# heavy: a thousand clients
# A thousand clients of the UAPI socket at once, idle, slow, stuck in a request or in an answer: others are served, and data.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.bash"
need perl

two_hosts
tunnel v4
# Large enough an answer that no socket holds all of it.
{
  printf '[Peer]\nPublicKey = %s\nAllowedIPs = 10.9.0.2/32, fd09::2/128\n' "$(public h2)"
  awk 'BEGIN { for (i = 0; i < 20000; i++) printf "AllowedIPs = 10.%d.%d.0/24\n", 100 + i / 256, i % 256 }'
} >"$WORK/many.conf"
on h1 wg addconf wg1 "$WORK/many.conf"
before_fault
memory=$(rss_kb "${PID[wg1]}")
ulimit -n 4096
perl -MSocket -MIO::Handle -e '
  my ($path, @clients) = @ARGV;
  sub client {
    socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
    connect($s, pack_sockaddr_un($path)) or die "connect: $!";
    syswrite $s, $_[0];
    push @clients, $s;
    return $s;
  }
  local $SIG{PIPE} = "IGNORE";
  my @slow;
  for my $i (1 .. 250) {
    client("");                                                # says nothing
    client("set=1\nlisten_port=1\n");                          # stops in the middle of a request
    client(sprintf "set=1\npublic_key=%064x\nallowed_ip=", $i);
    push @slow, client("s");
  }
  client("get=1\n\n");                                         # does not read the answer
  print "here\n"; STDOUT->flush;
  for my $byte (split //, "et=1\nlisten_port=2\n" x 20) {      # a byte a second
    sleep 1;
    syswrite $_, $byte for @slow;
  }' /run/wireguard/wg1.sock >"$WORK/clients" 2>"$SCENARIO_LOGS/clients.log" &
wait_for 30 "the clients to be there" grep -q here "$WORK/clients"

shows() {
  local begun longest=0 took
  for _ in {1..20}; do
    begun=$(now_ms)
    on h1 timeout 10 wg show wg1 >"$WORK/show" || fail "wg show beside the clients: ended with $?: $(cat "$WORK/show")"
    took=$(($(now_ms) - begun))
    ((took < longest)) || longest=$took
  done
  note "the longest of 20 shows beside 1,000 clients: $longest ms"
}
ip netns exec h1 ping -n -q -i 0.01 -c 200 10.9.0.2 >"$WORK/pings" 2>&1 &
pings=$!
shows
on h1 timeout 10 wg set wg1 peer "$(public h2)" persistent-keepalive 21 || fail "wg set beside the clients: ended with $?"
expect "persistent keepalive" 21 "$(on h1 wg show wg1 persistent-keepalive | cut -f 2)"
on h1 wg set wg1 peer "$(public h2)" persistent-keepalive 0
wait $pings || fail "pings beside the clients: $(grep loss "$WORK/pings")"
expect "pings beside the clients" "0% packet loss" "$(grep -o '[0-9]*% packet loss' "$WORK/pings")"
at_ease wg1 20 "a thousand clients" sleep 2
expect_at_most "kilobytes that the daemon grew by" 70000 $(($(rss_kb "${PID[wg1]}") - memory))
expect "listening port" 50001 "$(on h1 wg show wg1 listen-port)"
after_fault 2 "a thousand clients"
