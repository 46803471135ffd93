#!/usr/bin/env bash
# timeout: 600
# `reload` that is killed before any of its writes: another `reload`, of the same file, of the old one or of a third, does
# what is missing and takes away what is too much; and `down` straight after leaves the host as it was.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need strace

hosts_with_files
ip -n h1 route add default via 192.0.2.2
echo "nameserver 192.0.2.54" >"$WORK/etc/resolv.conf"
remember
cp "$WORK/before" "$WORK/without"

split() { tunnel_file wg1 10.9.0.2/32,fd09::2/128 "ListenPort = 50001" "MTU = 1380" "DNS = 192.0.2.55"; }
full() {
  tunnel_file wg1 0.0.0.0/0,::/0,192.168.77.0/24 "ListenPort = 50011" "DNS = 192.0.2.53" "#! RouteConflict = replace" "#! KillSwitch = true"
  sed -i 's/^Address = .*/Address = 10.9.0.1\/24, 10.9.8.1\/24, fd09::1\/64/' /etc/wireguard/wg1.conf
}
third() {
  tunnel_file wg1 0.0.0.0/0,198.51.100.0/24 "ListenPort = 50001" "#! KillSwitch = true"
  sed -i 's/^Address = .*/Address = 10.9.0.1\/24/' /etc/wireguard/wg1.conf
}

# What there is of a tunnel; orders do not count, and link-local addresses are random.
as_it_is() { state | sed "s/fe80::[0-9a-f:]*/fe80::/" | sort && on h1 wg showconf wg1 && on h1 wg show wg1 fwmark; }
for file in split full third; do
  $file
  good linerate up wg1
  as_it_is >"$WORK/$file"
  good linerate down wg1
  is_gone wg1
done
as_file() { # FILE WHEN
  as_it_is >"$WORK/after"
  diff "$WORK/$1" "$WORK/after" >"$WORK/difference" || fail "$2: the host is not as an up of '$1' leaves it: $(tr '\n' ' ' <"$WORK/difference")"
  say "$2: the host is as an up of '$1' leaves it"
}

# strace waits for all that a command starts, and counts its writes: no supervisor is started while somebody holds its lock.
mkdir -p /run/linerate
exec 8>/run/linerate/wg1.supervisor
flock 8
# A reload of the file as it is, with SIGKILL at the entry of its Nth write of a kind: to the kernel or the daemon, or of a file.
killed_at() { # CALLS N
  STATUS=0
  at h1 timeout 60 strace -f -o "$WORK/trace" -e "trace=$1" -e "inject=$1:signal=KILL:when=$2" "$LINERATE" reload wg1 >"$WORK/said" 2>&1 || STATUS=$?
}
declare -A count=()
for way in "split full" "full split"; do
  read -r old new <<<"$way"
  for calls in sendto,sendmsg,sendmmsg rename,renameat,renameat2; do
    for ((number = 1; ; number++)); do
      for next in "$new" "$old" third down; do
        $old
        good linerate up wg1
        $new
        killed_at "$calls" "$number"
        ((STATUS != 0)) || break 2
        if [[ $next != down ]]; then
          $next
          good linerate reload wg1
          as_file "$next" "$old to $new, killed at $calls $number, then $next"
        fi
        good linerate down wg1
        is_gone wg1
        as_before "$old to $new, killed at $calls $number, $next, then down"
      done
      count[$way $calls]=$number
    done
    as_file "$new" "$old to $new, not killed"
    good linerate down wg1
    is_gone wg1
  done
done
for key in "${!count[@]}"; do
  expect_at_least "moments, $key" 3 "${count[$key]}"
done

say "another tunnel comes up before the first step of a reload that was killed"
split
good linerate up wg1
full
number=0
until grep -q '"step"' <(sed -n '/"pending"/,$p' /run/linerate/wg1.json); do killed_at sendto,sendmsg,sendmmsg $((++number)); done
expect "rules of tunnels" "" "$({ ip -n h1 -4 rule && ip -n h1 -6 rule; } | grep fwmark || true)"
tunnel_file wg3 198.51.100.0/24,0.0.0.0/0 "ListenPort = 50003"
sed -i 's/^Address = .*/Address = 10.9.3.1\/24/' /etc/wireguard/wg3.conf
good linerate up wg3
good linerate reload wg1
[[ $(on h1 wg show wg1 fwmark) != "$(on h1 wg show wg3 fwmark)" ]] || fail "both tunnels have the mark $(on h1 wg show wg1 fwmark)"
good linerate down wg3
is_gone wg3
good linerate down wg1
is_gone wg1
as_before "down of both"

exec 8>&-
say "the daemon dies after a reload that was killed when all was done, and its supervisor starts it again"
split
at h1 "$LINERATE" up --supervise wg1 >>"$SCENARIO_LOGS/supervise.log" 2>&1 &
wait_for 10 "wg1 to be up" ledger_complete wg1
full
killed_at rename,renameat,renameat2 3
expect "how the reload ended" 137 "$STATUS"
expect_failure "the ledger is complete" ledger_complete wg1
dead=$(daemon_of wg1)
kill -KILL "$dead"
# What it gave the device is given back by the next reload: its text is kept for that.
of_host() { grep -v -e '^ListenPort' -e '^AllowedIPs' -e '/wg1.next$'; }
revived() { [[ $(daemon_of wg1) != "$dead" ]] && ledger_complete wg1 && diff <(as_it_is | of_host) <(of_host <"$WORK/split"); }
wait_for 10 "the host as an up of 'split' leaves it" revived
good linerate reload wg1
as_file full "a reload after that"
pkill -f "up --supervise wg1\$"
wait_for 10 "the supervisor to end" eval '! pgrep -f "up --supervise wg1\$"'
is_gone wg1
as_before "the end of the service"
