#!/usr/bin/env bash
# heavy: ten thousand clients
# timeout: 300
# With 10,000 clients one more is added by one request to the daemon, and leaves the others alone. Times are not judged.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
two_hosts
server=/etc/wireguard/wg1.conf
key h1
(umask 077 && cat >$server) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.71.0.1/18, fd71::1/64
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
CONF
client() { at h1 timeout 120 "$LINERATE" client "$@" >"$WORK/out" 2>"$WORK/said" || fail "client ${1}: $(head -n 3 "$WORK/said")"; }
micros() { echo "${EPOCHREALTIME/./}"; }
timed() { # COMMAND... : leaves its milliseconds in $TOOK
  local before
  before=$(micros)
  "$@"
  TOOK=$((($(micros) - before) / 1000))
}
peers() { on h1 wg show wg1 peers | wc -l; }

mapfile -t names < <(seq -f 'c%.0f' 1 9990)
timed client add "${names[@]}" --json
note "9,990 clients added at once: $TOOK ms"
timed good linerate up wg1
note "up: $TOOK ms"
expect "peers" 9990 "$(peers)"
rm -f "$WORK/adds"
for number in {1..10}; do
  timed client add "d$number" --pubkey "$(wg genkey | wg pubkey)"
  echo $TOOK >>"$WORK/adds"
done
expect "peers" 10000 "$(peers)"
note "one more, up to the 10,000th: $(sort -n "$WORK/adds" | awk '{ a[NR] = $1 } END { print a[5] " ms (" a[1] " to " a[NR] ")" }')"
timed client list
note "list: $TOOK ms"
expect "lines of the list" 10001 "$(wc -l <"$WORK/out")"
timed good linerate reload wg1
note "reload: $TOOK ms"
said "reload" "nothing has changed"
note "daemon: $(rss_kb "$(daemon_of wg1)") kB"

say "what the daemon is asked for one more"
at h1 strace -f -e trace=sendto,sendmsg,write,recvfrom -s 300 -o "$WORK/calls" "$LINERATE" client disable d1 2>/dev/null || skip "strace cannot trace here"
expect "requests with changes" 1 "$(grep -c 'set=1' "$WORK/calls")"
expect "requests for the whole state" 0 "$(grep -c 'get=1\\n' "$WORK/calls" || true)"
expect "peers" 9999 "$(peers)"
