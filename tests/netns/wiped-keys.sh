#!/usr/bin/env bash
# Keys that a daemon does not need any more are nowhere in its memory: not as bytes, and not as the text they came in.
# timeout: 180
source "$(dirname "$0")/lib.sh"
need od perl
# A peer that reveals its keys.
KNOWN_KEYS=${KNOWN_KEYS:-$EXAMPLES/known-keys}
[[ -x $KNOWN_KEYS ]] || fail "there is no $KNOWN_KEYS (cargo build -p linerate-protocol --example known-keys)"

two_hosts
preshared shared
key other
tunnel v4
on h1 wg set wg1 peer "$(public h2)" preshared-key "$WORK/shared.psk"
on h2 wg set wg2 peer "$(public h1)" preshared-key "$WORK/shared.psk"
forget h1 wg1
pings h2 10.9.0.1

# All that the process may write to. (What it cannot write to, no key was ever written to.)
memory() {
  local range permissions rest
  while read -r range permissions rest; do
    [[ $permissions == rw* && $rest != *'[vvar'* ]] || continue
    local from=$((0x${range%-*})) to=$((0x${range#*-}))
    dd if="/proc/${PID[wg1]}/mem" bs=1M iflag=skip_bytes,count_bytes skip=$from count=$((to - from)) status=none 2>/dev/null || true
  done <"/proc/${PID[wg1]}/maps"
}
ascii() { printf %s "$1" | od -An -v -tx1 | tr -d ' \n'; } # TEXT : as bytes
times() { perl -0777 -ne 'BEGIN { $key = pack "H*", shift } print scalar(() = /\Q$key/g)' "$1" "$WORK/memory"; } # BYTES
look() { memory >"$WORK/memory"; }
nowhere() { # FILE WHAT
  expect "$2: its bytes in memory" 0 "$(times "$(hex <"$WORK/$1")")"
  expect "$2: its hexadecimal digits in memory" 0 "$(times "$(ascii "$(hex <"$WORK/$1")")")"
}

look
(($(wc -c <"$WORK/memory") > 1000000)) || skip "the memory of another process cannot be read here"
expect_at_least "the private key in use" 1 "$(times "$(hex <"$WORK/h1.key")")"
expect_at_least "the preshared key in use" 1 "$(times "$(hex <"$WORK/shared.psk")")"
expect "the private key as it was sent" 0 "$(times "$(ascii "$(hex <"$WORK/h1.key")")")"
expect "the preshared key as it was sent" 0 "$(times "$(ascii "$(hex <"$WORK/shared.psk")")")"

say "another private key"
on h1 wg set wg1 private-key "$WORK/other.key"
look
nowhere h1.key "the private key of before"
expect_at_least "the private key in use" 1 "$(times "$(hex <"$WORK/other.key")")"

say "a peer that is removed"
on h1 wg set wg1 peer "$(public h2)" remove
look
nowhere shared.psk "its preshared key"

say "after the keys were shown"
on h1 wg show wg1 private-key >/dev/null
look
expect "the private key as it was shown" 0 "$(times "$(ascii "$(hex <"$WORK/other.key")")")"

say "sessions that end with the link"
stop_daemon wg2
wiped() { # KEY... : none of them is in memory
  local key
  look
  for key; do (($(times "$key") == 0)) || return; done
}
session() { # initiate|respond : what h2's end of it does
  local role=$1 arguments=() line
  on h1 wg set wg1 listen-port 50001 peer "$(public h2)" allowed-ips 10.9.0.2/32
  wait_for 5 "wg1 to open its port" listens_udp h1 50001
  if [[ $role == initiate ]]; then
    arguments=(192.0.2.1:50001)
  else
    on h1 wg set wg1 peer "$(public h2)" endpoint 192.0.2.2:50002
  fi
  on h2 "$KNOWN_KEYS" "$(hex <"$WORK/h2.key")" "$(public other | hex)" 50002 "$role" "${arguments[@]}" \
    >"$WORK/known" 2>&1 &
  local known=$!
  if [[ $role == respond ]]; then
    wait_for 5 "the peer to open its port" listens_udp h2 50002
    on h1 ping -n -q -c 1 -W 1 10.9.0.2 >/dev/null || true
  fi
  wait "$known" || fail "$role: no session: $(cat "$WORK/known")"
  mapfile -t keys <"$WORK/known" # static-static, sealing, opening
  wait_for 5 "the session to carry data" carried
  look
  for line in "${keys[@]}"; do expect_at_least "$role: a key in use" 1 "$(times "$line")"; done
  link_down h1 wg1
  wait_for 20 "$role: the transport keys to be wiped" wiped "${keys[1]}" "${keys[2]}"
  on h1 wg set wg1 peer "$(public h2)" remove
  wait_for 20 "$role: the static-static key to be wiped" wiped "${keys[0]}"
  link_up h1 wg1
}
carried() { (($(received h1 wg1) + $(sent h1 wg1) > 0)) && (($(handshake_time h1 wg1))); }
session initiate
session respond
