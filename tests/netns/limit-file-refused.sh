#!/usr/bin/env bash
# timeout: 150
# A client expires while its file is not the supervisor's to write: it is kept out, one warning says so, and the file tells of it later.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

export LINERATE_USAGE=$WORK/usage
hosts_with_files
on h2 wg set wg2 peer "$(public h1)" endpoint 192.0.2.1:50001
file=/etc/wireguard/wg1.conf
ENDPOINT=192.0.2.2:50002 tunnel_file wg1 10.9.0.2/32 "ListenPort = 50001"
sed -i '/^Endpoint/d' "$file"
printf '%s\n' "#! Created = 2026-01-31T12:00:00Z" "#! Expires = $(date -u -d "@$(($(date +%s) + 6))" +%Y-%m-%dT%H:%M:%SZ)" >>"$file"
in_file() { grep -qF -- "$1" "$file"; } # TEXT
warnings() { grep -c "does not tell yet what became of clients" "$WORK/said"; }
chown nobody "$file" 2>/dev/null || skip "no file can be given away here"
LOG_LEVEL=error good linerate up wg1
wait_for 12 "a warning" warnings
shown() { at h1 "$LINERATE" status wg1 | grep -q "does not tell yet what became of clients"; }
not_shown() { ! shown; }
wait_for 5 "the warning in the status" shown
sleep 2 # the daemon writes usage meanwhile
! in_file "Expired" || fail "the supervisor can write the file all the same: nothing is shown here"
no_ping h2 10.9.0.1
chown root "$file"
wait_for 75 "its section to be comments" in_file "#~ PublicKey = $(public h2)"
expect "warnings" 1 "$(warnings)"
wait_for 5 "the status without it" not_shown
good linerate down wg1
