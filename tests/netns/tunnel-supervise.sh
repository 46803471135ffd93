#!/usr/bin/env bash
# timeout: 90
# `up --supervise`, as a service manager runs it: it says when it is ready, starts a dead daemon again, and cleans up.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
ip -n h1 route add default via 192.0.2.2
key h3
address h2 lo 203.0.113.7/32
tunnel_file wg1 0.0.0.0/0,::/0 "#! KillSwitch = true" "#! ExcludedIPs = 192.168.77.0/24" "PostUp = echo up >>$WORK/runs" "PostDown = echo down >>$WORK/runs"

# The service manager: it records its notifications.
nc -lkuU "$WORK/notify" >"$WORK/notified" 2>/dev/null </dev/null &
wait_for 30 "the service manager" test -S "$WORK/notify"
told() { grep -qa "$1" "$WORK/notified"; }
supervise() { # [FILE FOR WHAT IT SAYS]
  local said=${1:-$SCENARIO_LOGS/supervise.log}
  : >"$WORK/notified"
  rm -f "$WORK/ended"
  {
    STATUS=0
    NOTIFY_SOCKET=$WORK/notify nsenter --net=/run/netns/h1 "$LINERATE" up --supervise wg1 >>"$said" 2>&1 || STATUS=$?
    echo "$STATUS" >"$WORK/ended"
  } &
  wait_for 10 "READY=1" told READY=1
  SUPERVISOR=$(pgrep -o -f "up --supervise wg1")
}
has_ended() { [[ -s $WORK/ended ]]; }
ended_with() { # STATUS WHAT
  wait_for 10 "the service to end" has_ended
  expect "$2: status" "$1" "$(cat "$WORK/ended")"
  is_gone wg1
  as_before "$2"
}

remember
supervise
pings h1 203.0.113.7
# (The kernel makes up a link-local address for every new TUN device.)
whole() { state | sed 's/ fe80::[^ ]*\/64//; /fe80::.* dev wg1/d' && on h1 wg showconf wg1; }
restarted() { # the same tunnel by another process
  [[ $(daemon_of wg1) != "$1" && -n $(daemon_of wg1) ]] && diff <(whole) "$WORK/whole" >"$WORK/difference"
}
death() { # WHICH
  local before begun
  whole >"$WORK/whole"
  before=$(daemon_of wg1)
  begun=$(now_ms)
  kill -KILL "$before"
  until restarted "$before"; do
    (($(now_ms) < begun + 10000)) || fail "the tunnel is not as it was before the daemon died: $(tr '\n' ' ' <"$WORK/difference")"
    sleep 0.02
  done
  note "death $1: as it was after $(($(now_ms) - begun)) ms"
  pings h1 203.0.113.7
  pings h1 192.168.77.2
  pings h2 10.9.0.1
}
death 1
death 2

# What was set while it ran is there after a restart as well; the supervisor reads it now and then.
on h1 wg set wg1 peer "$(public h3)" allowed-ips 10.9.0.3/32 persistent-keepalive 7
on h1 wg set wg1 listen-port 50011
pings h1 10.9.0.2
sleep 11
death 3
cp /etc/wireguard/wg1.conf "$WORK/wg1.conf"
good linerate save wg1
expect "what is saved of another daemon that the supervisor started" "[Peer] PublicKey = $(public h3) AllowedIPs = 10.9.0.3/32 PersistentKeepalive = 7" \
  "$(diff "$WORK/wg1.conf" /etc/wireguard/wg1.conf | sed -n 's/^[<>] //p' | grep . | xargs -d '\n')"
cp "$WORK/wg1.conf" /etc/wireguard/wg1.conf
expect "the commands that were run" "up" "$(xargs <"$WORK/runs")"
kill -TERM "$SUPERVISOR"
ended_with 0 "SIGTERM"
told STOPPING=1 || fail "STOPPING=1 was not told"
expect "the commands that were run" "up down" "$(xargs <"$WORK/runs")"

say "taken down by others"
deaths() { grep -c 'the daemon has exited' "$SCENARIO_LOGS/supervise.log" || true; }
before=$(deaths)
supervise
good linerate down wg1
ended_with 0 "down"
expect "deaths in the log of it" "$before" "$(deaths)"

say "SaveConfig: what runs is saved when the service ends, into the file as it is then"
cp /etc/wireguard/wg1.conf "$WORK/wg1.conf"
sed -i 's/^Address/SaveConfig = true\n&/' /etc/wireguard/wg1.conf
supervise
on h1 wg set wg1 peer "$(public h3)" allowed-ips 10.9.0.3/32 persistent-keepalive 9
echo "# written meanwhile" >>/etc/wireguard/wg1.conf
cp /etc/wireguard/wg1.conf "$WORK/then.conf"
kill -TERM "$SUPERVISOR"
ended_with 0 "SIGTERM with SaveConfig"
expect "what was saved" "[Peer] PublicKey = $(public h3) AllowedIPs = 10.9.0.3/32 PersistentKeepalive = 9" \
  "$(diff "$WORK/then.conf" /etc/wireguard/wg1.conf | sed -n 's/^[<>] //p' | grep -v ListenPort | grep . | xargs -d '\n')"
cp "$WORK/wg1.conf" /etc/wireguard/wg1.conf
: >"$WORK/runs"

say "name servers may take their time to go when the service ends"
mkdir "$WORK/slow"
printf '#!/bin/bash\necho "$*" >>%s\n[[ $1 != -d ]] || sleep 2\n' "$WORK/resolvconf" >"$WORK/slow/resolvconf"
chmod +x "$WORK/slow/resolvconf"
sed -i 's/^Address/DNS = 192.0.2.53\n&/' /etc/wireguard/wg1.conf
PATH=$WORK/slow:$PATH supervise
kill -TERM "$SUPERVISOR"
ended_with 0 "SIGTERM with a slow resolvconf"
expect "what resolvconf was told last" "-d wg1 -f" "$(tail -n 1 "$WORK/resolvconf")"
cp "$WORK/wg1.conf" /etc/wireguard/wg1.conf
: >"$WORK/runs"

say "nobody reads what it says any more"
mkfifo "$WORK/unread"
sleep 1000 <>"$WORK/unread" &
supervise "$WORK/unread"
dd if=/dev/zero of="$WORK/unread" bs=4096 oflag=nonblock 2>/dev/null || true # as much as it holds
death 4
good linerate down wg1
ended_with 0 "down"

say "the supervisor is killed: the tunnel stays, and down finds it"
supervise
kill -KILL "$SUPERVISOR"
wait_for 5 "the supervisor to end" has_ended
pings h1 203.0.113.7
good linerate down wg1
is_gone wg1
as_before "down without the supervisor"

say "a daemon that does not stay alive is given up; the kill switch holds until the tunnel is taken down"
supervise
killed_again() {
  pkill -KILL -f "linerated wg1\$" || true
  has_ended
}
wait_for 25 "the service to give up" killed_again
[[ $(cat "$WORK/ended") != 0 ]] || fail "expected a status other than 0 when the daemon does not stay alive"
[[ -n $(on h1 nft list tables | grep linerate-wg1) ]] || fail "the kill switch went with a daemon that does not stay alive"
good linerate down wg1
is_gone wg1
as_before "a daemon that does not stay alive"

say "a tunnel that cannot come up is not ready"
: >"$WORK/notified"
tunnel_file wg1 10.9.0.2/32 "PostUp = exit 3"
expect_failure "up of a file whose command fails" env NOTIFY_SOCKET="$WORK/notify" nsenter --net=/run/netns/h1 timeout 20 "$LINERATE" up --supervise wg1
! told READY || fail "READY was told"
is_gone wg1
as_before "a tunnel that did not come up"
