#!/usr/bin/env bash
# What has a tunnel's keys is root's alone, whatever the umask: ledger, socket; no key is in a log, an argument or a core.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

umask 000
ulimit -H -c unlimited 2>/dev/null && ulimit -c unlimited || skip "core dumps cannot be allowed here"
hosts_with_files
preshared shared
tunnel_file wg1 10.9.0.2/32,fd09::2/128
echo "PresharedKey = $(cat "$WORK/shared.psk")" >>/etc/wireguard/wg1.conf
on h2 wg set wg2 peer "$(public h1)" preshared-key "$WORK/shared.psk"
export LOG_LEVEL=debug
mkdir "$WORK/cores"
(cd "$WORK/cores" && at h1 "$LINERATE" up --supervise wg1 >"$WORK/up.log" 2>&1) &
wait_for 20 "wg1 to carry packets" on h1 ping -n -q -c 1 -W 1 10.9.0.2 # it answers before its routes are there
pings h1 10.9.0.2
good linerate status wg1
good linerate show wg1
good linerate reload wg1
daemon=$(daemon_of wg1) supervisor=$(pgrep -o -f "up --supervise wg1\$")

expect_at_least "files that say what was done" 1 "$(find /run/linerate -type f | wc -l)"
expect "files in /run/linerate that others may use" "" "$(find /run/linerate -type f -not -perm 600)"
expect "folders there that others may use" "" "$(find /run/linerate -type d -not -perm 700)"
expect "the socket" 700 "$(stat -c %a /run/wireguard/wg1.sock)"
expect "the folder of sockets" 755 "$(stat -c %a /run/wireguard)"

for file in h1.key shared.psk; do
  for place in "$WORK/up.log" "$WORK/said" /proc/{$daemon,$supervisor}/{cmdline,environ}; do
    ! grep -qaF "$(cat "$WORK/$file")" "$place" || fail "$file is in $place"
    ! grep -qaF "$(hex <"$WORK/$file")" "$place" || fail "$file is in $place, in hexadecimal"
  done
done
expect_at_least "lines of the log at level debug" 3 "$(wc -l <"$WORK/up.log")"

expect "how large a core of the daemon may be, softly and hard" "0 0" "$(awk '/^Max core file size/ { print $5, $6 }' "/proc/$daemon/limits")"

if [[ $(cat /proc/sys/kernel/core_pattern) == [/\|]* ]]; then
  note "cores go elsewhere here: that of the supervisor was not looked for"
else
  kill -ABRT "$supervisor"
  wait_for 5 "the supervisor to end" eval "[[ ! -d /proc/$supervisor ]]"
  expect "cores of the supervisor" "" "$(find "$WORK/cores" -type f)"
fi
