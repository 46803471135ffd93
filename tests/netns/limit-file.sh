#!/usr/bin/env bash
# timeout: 120
# Expires, Quota and NextPublicKey of a tunnel's file: kept while it runs, and what becomes of a client is in the file.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

export LINERATE_USAGE=$WORK/usage
hosts_with_files
on h2 wg set wg2 peer "$(public h1)" endpoint 192.0.2.1:50001
file=/etc/wireguard/wg1.conf
created="#! Created = 2026-01-31T12:00:00Z"
in_days() { date -u -d "@$(($(date +%s) + $1 * 86400 + ${2:-0}))" +%Y-%m-%dT%H:%M:%SZ; } # DAYS [SECONDS]
client_file() { # LINE... : of the client
  ENDPOINT=192.0.2.2:50002 tunnel_file wg1 10.9.0.2/32 "ListenPort = 50001"
  sed -i '/^Endpoint/d' "$file"
  printf '%s\n' "$created" "$@" >>"$file"
}
carries() { on h2 ping -n -q -c 1 -W 1 10.9.0.1; }
cut_off() { ! on h2 ping -n -q -c 1 -W 0.3 10.9.0.1; }
renewed() { # the client starts over: it does not wait for its own timers
  link_down h2 wg2
  link_up h2 wg2
}
in_file() { grep -qF -- "$1" "$file"; }       # TEXT
no_peer() { [[ -z $(at h1 wg show wg1 peers) ]]; }
shown() { at h1 "$LINERATE" show wg1 >"$WORK/said" && said "show" "$1"; } # PATTERN

say "an end"
# Later than the five seconds after which a client repeats an initiation that came before the port was open.
client_file "#! Expires = $(in_days 0 16)" "#! Quota = 50G" "#! QuotaReset = monthly"
cp "$file" "$WORK/before.conf"
good linerate up wg1
wait_for 5 "traffic" carries
shown "expires: 20.*Z"
shown "of 46.57 GiB used, anew on day 31 of each month"
before=$(wakeups "$(daemon_of wg1)")
wait_for 18 "the client to be cut off" cut_off
wait_for 5 "its section to be comments" in_file "#~ PublicKey = $(public h2)"
grep -q '^#~ #! Expired = 20..-..-..T..:..:..Z$' "$file" || fail "the file does not tell when: $(cat "$file")"
expect "what other tools see of it" "" "$(at h1 wg-quick strip wg1 2>/dev/null | grep '^\[Peer' || true)"
expect "the file, but for that" "$(<"$WORK/before.conf")" "$(sed '/Expired/d; s/^#~ //' "$file")"
wait_for 5 "the peer to be gone" no_peer
good linerate down wg1
is_gone wg1

say "the file as it was before does not let it in either, by whatever runs it"
cp "$WORK/before.conf" "$file"
good linerate up wg1
renewed
wait_for 5 "its section to be comments" in_file "#~ PublicKey = $(public h2)"
cut_off || fail "the client is let in"
good linerate down wg1
is_gone wg1
if type -P wireguard-go >/dev/null; then
  cp "$WORK/before.conf" "$file"
  WG_QUICK_USERSPACE_IMPLEMENTATION=wireguard-go good linerate up wg1
  said "warning" "only linerated keeps Expires"
  expect "peers" "" "$(at h1 wg show wg1 peers)"
  good linerate down wg1
  is_gone wg1
fi

say "a quota, over down and up, and a daemon that the supervisor starts again"
client_file "#! Quota = 200k"
good linerate up wg1
renewed
wait_for 5 "traffic" carries
on h2 ping -n -q -c 150 -i 0.01 -s 1000 -W 1 10.9.0.1 >/dev/null || true
wait_for 5 "the client to be cut off" cut_off
good linerate down wg1
is_gone wg1
good linerate up wg1
shown "suspended: quota reached"
at h1 "$LINERATE" status wg1 >"$WORK/said"
said "status" "quota reached"
sed -i 's/200k/10M/' "$file"
good linerate reload wg1
renewed
wait_for 5 "traffic" carries
used() { printf 'get=1\n\n' | at h1 timeout 5 nc -N -U /run/wireguard/wg1.sock | sed -n 's/^quota_used=//p'; }
before=$(used)
good linerate down wg1
is_gone wg1
good linerate up wg1
expect_at_least "bytes used before the tunnel was taken down" "$before" "$(used)"
expect_at_least "of which the latest were not written yet" 200001 "$before"
renewed
wait_for 5 "traffic" carries

say "a file that is changed while a reload waits for another command"
exec {lock}>>/run/linerate/wg1.lock
flock $lock
at h1 timeout 30 "$LINERATE" reload wg1 >"$WORK/waits" 2>&1 {lock}>&- &
waits=$!
wait_for 5 "the reload to wait" grep -q "waiting for it" "$WORK/waits"
sed -i 's/10M/20M/' "$file"
exec {lock}>&-
wait $waits || fail "the reload: $(cat "$WORK/waits")"
shown "of 19.07 MiB used"

say "a key that replaces another"
key next
sed -i "s|^$created|&\n#! NextPublicKey = $(public next)|" "$file"
good linerate reload wg1
wait_for 5 "traffic by the old key" carries
shown "replaces: .*, at its first handshake"
on h2 wg set wg2 private-key "$WORK/next.key"
renewed
wait_for 5 "traffic by the new key" carries
wait_for 5 "the new key to be in the file" in_file "PublicKey = $(public next)"
! in_file NextPublicKey || fail "it still is the next one"
expect "peers" "$(public next)" "$(at h1 wg show wg1 peers)"
good linerate reload wg1
expect "changes of the file that are not applied" "" "$(at h1 "$LINERATE" reload wg1 2>&1 | grep -i peer || true)"
on h2 wg set wg2 private-key "$WORK/h2.key"
renewed
cut_off || fail "the old key is let in"
good linerate down wg1
is_gone wg1
