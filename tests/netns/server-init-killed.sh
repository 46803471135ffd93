#!/usr/bin/env bash
# timeout: 240
# `server init` and `server remove`, killed at many moments: no file or a whole one, and the next command starts over or
# goes on; a signal leaves nothing.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"

internet
remember_all

# Kills it after so many milliseconds, or says that it was done before.
killed_after() { # MS SIGNAL VERB [OPTION...]
  STATUS=0
  at h1 timeout --preserve-status --signal="$2" "$(awk "BEGIN { print $1 / 1000 }")" "$LINERATE" server "${@:3}" >"$WORK/said" 2>&1 || STATUS=$?
  { echo "--- server ${*:3}, $2 after $1 ms: $STATUS" && cat "$WORK/said"; } >>"$SCENARIO_LOGS/said.log"
}
whole_or_nothing() { # WHAT
  local file=/etc/wireguard/wg0.conf
  [[ ! -e $file ]] && return
  grep -q '^#! Masquerade = both$' "$file" && [[ $(tail -c 1 "$file" | od -An -c) == *'\n'* ]] || fail "$1: half a file: $(cat "$file")"
  expect "$1: mode of the file" 600 "$(stat -c %a "$file")"
}
# How long it takes, so that the moments are spread over it.
started=$(now_ms)
server init
took=$(($(now_ms) - started))
server remove
all_as_before "init and remove"

cut=0
for moment in $(seq 0 24); do
  killed_after "$((1 + took * moment / 22))" KILL init
  ((STATUS == 0)) || cut=$((cut + 1))
  whole_or_nothing "init, killed at moment $moment"
  # Killed at its very end it is complete.
  grep -q '"state": "made"' /var/lib/linerate/wg0.server.json 2>/dev/null || server init
  expect "port" 51820 "$(is_up)"
  [[ $(find /etc/wireguard /var/lib/linerate -name '*.new' | wc -l) == 0 ]] || fail "something is left: $(find /etc/wireguard /var/lib)"
  server remove
  is_gone wg0
  all_as_before "init, killed at moment $moment, then again, then removed"
done
expect_at_least "moments at which init was killed" 5 "$cut"

for moment in $(seq 0 12); do
  server init
  killed_after "$((1 + took * moment / 10))" KILL remove
  whole_or_nothing "remove, killed at moment $moment"
  if [[ -e /var/lib/linerate/wg0.server.json ]]; then server remove wg0; fi
  rmdir /var/lib/linerate 2>/dev/null || true # empty, if it was killed between its last two calls
  is_gone wg0
  all_as_before "remove, killed at moment $moment, then again"
done

for moment in $(seq 0 12); do
  killed_after "$((1 + took * moment / 10))" TERM init
  if ((STATUS == 0)); then server remove; fi
  is_gone wg0
  [[ ! -e /var/lib/linerate/wg0.server.json ]] || server remove wg0 # the signal came before anybody listened to it
  all_as_before "init, interrupted at moment $moment"
done

# A removal that was cut short is not finished by making another server while there are clients, even if only disabled.
server init
in_h1() { at h1 "$LINERATE" "$@"; }
in_h1 client add laptop >/dev/null 2>&1
in_h1 client disable laptop 2>/dev/null
for state in removing making; do
  sed -i "s/\"state\": \"[a-z]*\"/\"state\": \"$state\"/" /var/lib/linerate/wg0.server.json
  if in_h1 server init 2>"$WORK/said"; then fail "init went on over a server with a client ($state)"; fi
  if [[ $state == removing ]]; then grep -q 'finish with `linerate server remove' "$WORK/said" || fail "$(cat "$WORK/said")"; fi
  grep -q '^#~ # Name = laptop$' /etc/wireguard/wg0.conf || fail "the client is gone ($state)"
done
server remove --yes
all_as_before "a removal that was cut short, finished"

# A file that appears while a server is made is not its own: `init` was killed just before it would have written one.
server init --no-start
sed -i 's/"state": "made"/"state": "making"/' /var/lib/linerate/wg0.server.json
other_key() { sed -i "s|^PrivateKey = .*|PrivateKey = $(wg genkey)|" /etc/wireguard/wg0.conf; }
other_key
if in_h1 server init 2>"$WORK/said"; then fail "init replaced another's file"; fi
[[ -e /etc/wireguard/wg0.conf && ! -e /var/lib/linerate/wg0.server.json ]] || fail "not the record, but the file was removed"
rm /etc/wireguard/wg0.conf

# Nor is one that took the place of a server's, and `remove` says what to do; without it, the rest goes.
server init --no-start
other_key
md5sum /etc/wireguard/wg0.conf >"$WORK/other"
if in_h1 server remove --yes 2>"$WORK/said"; then fail "remove has removed another's file"; fi
grep -q 'is not the file that `linerate server init. wrote, so it stays' "$WORK/said" || fail "$(cat "$WORK/said")"
md5sum --quiet -c "$WORK/other" || fail "remove has changed another's file"
rm /etc/wireguard/wg0.conf
server remove wg0
all_as_before "the rest, removed"
