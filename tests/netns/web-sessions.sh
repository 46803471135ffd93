#!/usr/bin/env bash
# The page ends sessions one by one or all at once, and the command line ends all; a kept session outlives restarts.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/web.bash"

host h1
page
enter() { # JAR [FIELD]...
  expect "logging in" 303 "$(told -c "$WORK/$1" -d "token=$(token)" "${@:2}" "$PAGE/login")"
}
sees() { told -b "$WORK/$1" "$PAGE/"; } # JAR
lifetime() { awk '/linerate-session/ { print $5 }' "$WORK/$1"; }
log_in
enter laptop
enter phone -d keep=on
expect_at_least "days that the kept one lasts" 29.9 "$(awk "BEGIN { print ($(lifetime phone) - $(date +%s)) / 86400 }")"
expect_at_most "hours that another one lasts" 12.1 "$(awk "BEGIN { print ($(lifetime laptop) - $(date +%s)) / 3600 }")"

say "over a restart"
stop_daemon web
serve
wait_for 20 "the page" on h1 curl -s -o /dev/null "$PAGE/login"
for who in jar laptop phone; do expect "$who" 200 "$(sees $who)"; done

say "one of them, from the page"
on h1 curl -s -b "$WORK/jar" "$PAGE/sessions" >"$WORK/sessions.html"
expect "sessions in the list" 3 "$(grep -o '<tr><th scope="row">' "$WORK/sessions.html" | wc -l)"
expect "kept ones" 1 "$(grep -o 'kept on its browser' "$WORK/sessions.html" | wc -l)"
kept=$(grep -oP '<tr>(?:(?!</tr>).)*kept on its browser(?:(?!</tr>).)*</tr>' "$WORK/sessions.html" | grep -oP 'name="session" value="\K[0-9a-f]+')
expect "ending it without the form's secret" 403 "$(told -b "$WORK/jar" -d "session=$kept" "$PAGE/sessions")"
expect "ending it" 303 "$(told -b "$WORK/jar" -d "form=$form&session=$kept" "$PAGE/sessions")"
for who in "jar 200" "laptop 200" "phone 303"; do expect "${who% *}" "${who#* }" "$(sees "${who% *}")"; done

say "all others, by a read-only session and by a writing one"
expect "a token to look" 303 "$(told -c "$WORK/reader" -d "token=$(token --read-only)" "$PAGE/login")"
expect "the list for a read-only session" 403 "$(told -b "$WORK/reader" "$PAGE/sessions")"
expect "ending all others" 303 "$(told -b "$WORK/jar" -d "form=$form&session=others" "$PAGE/sessions")"
for who in "jar 200" "laptop 303" "reader 303"; do expect "${who% *}" "${who#* }" "$(sees "${who% *}")"; done

say "all, from the command line, while the page runs"
enter phone -d keep=on
at h1 "$LINERATE_WEB" logout --all --state "$WORK/state" 2>"$WORK/said"
said "logout" "2 sessions ended"
for who in jar phone; do expect "$who" 303 "$(sees $who)"; done
expect "logging in again" 303 "$(told -d "token=$(token)" "$PAGE/login")"
