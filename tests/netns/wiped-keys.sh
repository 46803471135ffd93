#!/usr/bin/env bash
# Keys that a daemon does not need any more are nowhere in its memory: not as bytes, and not as the text they came in.
source "$(dirname "$0")/lib.sh"
need od

two_hosts
preshared shared
key other
tunnel v4
on h1 wg set wg1 peer "$(public h2)" preshared-key "$WORK/shared.psk"
on h2 wg set wg2 peer "$(public h1)" preshared-key "$WORK/shared.psk"
forget h1 wg1
pings h2 10.9.0.1

# All that the process may write to, in hexadecimal. (What it cannot write to, no key was ever written to.)
memory() {
  local range permissions rest
  while read -r range permissions rest; do
    [[ $permissions == rw* && $rest != *'[vvar'* ]] || continue
    local from=$((0x${range%-*})) to=$((0x${range#*-}))
    dd if="/proc/${PID[wg1]}/mem" bs=4096 skip=$((from / 4096)) count=$(((to - from) / 4096)) status=none 2>/dev/null || true
  done <"/proc/${PID[wg1]}/maps" | od -An -v -tx1 | tr -d ' \n'
}
hex() { base64 -d "$WORK/$1" | od -An -v -tx1 | tr -d ' \n'; } # FILE : a key as bytes
ascii() { printf %s "$1" | od -An -v -tx1 | tr -d ' \n'; }      # TEXT : as bytes
times() { grep -o "$1" "$WORK/memory" | wc -l || true; }        # BYTES
look() { memory >"$WORK/memory"; }
nowhere() { # FILE WHAT
  expect "$2: its bytes in memory" 0 "$(times "$(hex "$1")")"
  expect "$2: its hexadecimal digits in memory" 0 "$(times "$(ascii "$(hex "$1")")")"
}

look
(($(wc -c <"$WORK/memory") > 1000000)) || skip "the memory of another process cannot be read here"
expect_at_least "the private key in use" 1 "$(times "$(hex h1.key)")"
expect_at_least "the preshared key in use" 1 "$(times "$(hex shared.psk)")"
expect "the private key as it was sent" 0 "$(times "$(ascii "$(hex h1.key)")")"
expect "the preshared key as it was sent" 0 "$(times "$(ascii "$(hex shared.psk)")")"

say "another private key"
on h1 wg set wg1 private-key "$WORK/other.key"
look
nowhere h1.key "the private key of before"
expect_at_least "the private key in use" 1 "$(times "$(hex other.key)")"

say "a peer that is removed"
on h1 wg set wg1 peer "$(public h2)" remove
look
nowhere shared.psk "its preshared key"

say "after the keys were shown"
on h1 wg show wg1 private-key >/dev/null
look
expect "the private key as it was shown" 0 "$(times "$(ascii "$(hex other.key)")")"
