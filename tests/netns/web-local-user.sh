#!/usr/bin/env bash
# timeout: 120
# While another user of the host guesses tokens and holds connections, a token still logs in at once, and sessions still work.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/web.bash"

host h1
page
log_in
say "guesses, as fast as they are answered"
as_stranger() { ip netns exec h1 setpriv --reuid=12345 --regid=12345 --clear-groups timeout 150 "$@"; }
install -o 12345 -m 644 /dev/null "$WORK/guesses"
as_stranger bash -c 'while :; do curl -s -o /dev/null -w "%{http_code}\n" -d "token=$RANDOM" "$1" >>"$2"; done' - "$PAGE/login" "$WORK/guesses" &
guesser=$!
wait_for 20 "guesses to be slowed down" eval '[[ $(grep -c 429 "$WORK/guesses") -ge 20 ]]'
for _ in 1 2 3; do
  expect "logging in with a token meanwhile" 303 "$(told -d "token=$(token)" "$PAGE/login")"
  expect "the page of who is logged in" 200 "$(told -b "$WORK/jar" "$PAGE/")"
done
kill "$guesser"

say "more silent connections than the page has places"
install -o 12345 -m 644 /dev/null "$WORK/held"
as_stranger bash -c 'ulimit -n 4096; while exec {held}<>/dev/tcp/127.0.0.1/7789; do echo >>"$1"; ((++count < 3000)) || sleep 60; done' - "$WORK/held" &
holder=$!
wait_for 20 "300 of them" eval '[[ $(wc -l <"$WORK/held") -ge 300 ]]'
for _ in 1 2 3; do
  expect "the page of who is logged in" 200 "$(told -m 5 -b "$WORK/jar" "$PAGE/")"
  expect "logging in" 303 "$(told -m 5 -d "token=$(token)" "$PAGE/login")"
done
kill "$holder"

say "more connections of a read-only session than the page has places"
expect "logging in to look" 303 "$(told -c "$WORK/reader" -d "token=$(token --read-only)" "$PAGE/login")"
cookie=$(awk '/linerate-session/ { print $6 "=" $7 }' "$WORK/reader")
: >"$WORK/held"
as_stranger bash -c 'ulimit -n 4096; while exec {held}<>/dev/tcp/127.0.0.1/7789; do
  printf "GET /style.css HTTP/1.1\r\nHost: 127.0.0.1:7789\r\nCookie: %s\r\n\r\n" "$2" >&$held
  echo >>"$1"; ((++count < 700)) || sleep 60; done' - "$WORK/held" "$cookie" &
holder=$!
wait_for 20 "700 of them" eval '[[ $(wc -l <"$WORK/held") -ge 700 ]]'
for _ in 1 2 3; do
  expect "the page of who is logged in" 200 "$(told -m 5 -b "$WORK/jar" "$PAGE/")"
  expect "logging in" 303 "$(told -m 5 -d "token=$(token)" "$PAGE/login")"
done
kill "$holder"
