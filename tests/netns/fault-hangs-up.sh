#!/usr/bin/env bash
# timeout: 150
# A daemon that closes each connection after its reply and tells no private key (boringtun): it is not asked without pause, and revived with its key.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need perl

hosts_with_files
tunnel_file wg1 10.9.0.2/32
export REQUESTS=$WORK/requests
daemon_of() { pgrep -f "closing-daemon.pl $1\$"; } # IFACE
gets() { grep -c '^get=1' "$REQUESTS" || true; }
keys_set() { grep -c "^private_key=$(hex <"$WORK/h1.key")\$" "$REQUESTS" || true; }
export WG_QUICK_USERSPACE_IMPLEMENTATION=$REPO/tests/netns/closing-daemon.pl
remember

say "supervised"
at h1 "$LINERATE" up --supervise wg1 >"$SCENARIO_LOGS/supervise.log" 2>&1 &
wait_for 30 "wg1 to be set up" eval '(($(gets) > 0 && $(keys_set) == 1))'
supervisor=$(pgrep -o -f "up --supervise wg1\$")
asked=$(gets) ticks=$(cpu_ticks "$supervisor")
sleep 3
expect_at_most "questions in 3 s" 3 $(($(gets) - asked))
expect_at_most "1/100 s of a core in 3 s" 20 $(($(cpu_ticks "$supervisor") - ticks))

say "a reload"
sed -i 's/^AllowedIPs.*/&, 198.18.0.0\/24/' /etc/wireguard/wg1.conf
good linerate reload wg1
grep -q '^allowed_ip=198.18.0.0/24' "$REQUESTS" || fail "the daemon was not told what the file has changed"

say "its death"
kill -KILL "$(daemon_of wg1)"
wait_for 25 "the daemon to be started again with its private key" eval '(($(keys_set) == 2))'
expect "deaths that were seen" 1 "$(grep -c 'the daemon has exited' "$SCENARIO_LOGS/supervise.log")"
wait_for 20 "the address to be back" eval "ip -n h1 addr show dev wg1 | grep -q 10.9.0.1/24"
expect_at_least "times that its peer was set" 2 "$(grep -c "^public_key=$(public h2 | hex)\$" "$REQUESTS")"
kill -TERM "$supervisor"
wait "$!" || fail "the service ended with $?"
is_gone wg1
as_before "supervised"

say "supervised, since its endpoint is a name: it is given each address, over connections that end"
: >"$REQUESTS"
ENDPOINT=unknown.example.com:50002 tunnel_file wg1 10.9.0.2/32
good linerate up wg1
supervised() { pgrep -o -f "linerate supervise wg1\$"; }
wait_for 20 "its supervisor" supervised
supervisor=$(supervised)
wait_for 20 "it to look" eval '(($(gets) > 0))'
echo "192.0.2.2 unknown.example.com" >>"$WORK/etc/hosts"
wait_for 20 "the address to be given" grep -q '^endpoint=192.0.2.2:50002' "$REQUESTS"
asked=$(gets) ticks=$(cpu_ticks "$supervisor")
sleep 3
expect_at_most "questions in 3 s" 3 $(($(gets) - asked))
expect_at_most "1/100 s of a core in 3 s" 20 $(($(cpu_ticks "$supervisor") - ticks))
kill -KILL "$(daemon_of wg1)"
wait_for 40 "the supervisor to see that the tunnel is gone" eval '! supervised'
good linerate down wg1
is_gone wg1
