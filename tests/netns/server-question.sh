#!/usr/bin/env bash
# What `server init` and `server remove` ask at a terminal: a bad answer is asked for again, Ctrl-C and Ctrl-D leave nothing, and without a terminal nobody is asked.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
need jq script

# h1 is behind a NAT, so its endpoint cannot be known.
internet
ip -n h1 address add 192.168.1.5/24 dev e1
ip -n h1 address delete 203.0.113.5/24 dev e1
ip -n h1 route replace default via 192.168.1.1 dev e1
remember_all

# A command on h1 at a terminal of its own, whose keys are those of `types`; the screen is in $WORK/screen.
mkfifo "$WORK/keys"
at_terminal() { # COMMAND
  : >"$WORK/screen"
  nsenter --net=/run/netns/h1 script -qefc "$1" "$WORK/screen" <"$WORK/keys" >/dev/null 2>&1 &
  terminal=$!
  exec 7>"$WORK/keys"
}
types() { printf '%b' "$1" >&7; } # KEYS
asks() { # TIMES
  is_asked() { (($(grep -o "$question" "$WORK/screen" | wc -l) == $1)); }
  wait_for 20 "the question, time $1" is_asked "$1"
}
ends() { # WITH : the status of the command
  local status=0
  wait "$terminal" || status=$?
  exec 7>&-
  cat "$WORK/screen" >>"$SCENARIO_LOGS/said.log"
  expect "status" "$1" "$status"
}
shows() { # WHAT PATTERN
  grep -qE -- "$2" "$WORK/screen" || fail "$1: expected words like '$2', saw: $(tr '\n' ' ' <"$WORK/screen")"
  say "$1: $(grep -E -- "$2" "$WORK/screen" | head -n 1 | tr -d '\r')"
}

question="Name or address by which clients reach this host: "
say "Ctrl-D, Ctrl-C"
at_terminal "$LINERATE server init"
asks 1
shows "why" "192.168.1.5 is not public"
types '\x04'
ends 1
shows "the end" "no endpoint was given; nothing was done"
all_as_before "Ctrl-D"
at_terminal "$LINERATE server init"
asks 1
types 'half a na\x03'
ends 1
shows "the end" "interrupted"
all_as_before "Ctrl-C"

say "bad answers, and a good one"
at_terminal "$LINERATE server init"
asks 1
types 'home example\n'
asks 2
shows "what is wrong" "home example. is not a public endpoint: write vpn.example.com"
types '\n'
asks 3
types 'home.example.com:99999\n'
asks 4
types ' home.example.com:443 \n'
ends 0
in_file "endpoint" "^#! PublicEndpoint = home.example.com:443$"
expect "port" 51820 "$(is_up)"

say "the question before a removal: anything but yes is no"
question="Remove wg0, keys included"
for keys in '\n' 'no\n' '\x04' '\x03'; do
  at_terminal "$LINERATE server remove"
  asks 1
  types "$keys"
  ends 1
  expect "it is still up" 51820 "$(is_up)"
done
at_terminal "$LINERATE server remove"
asks 1
types 'y\n'
ends 0
shows "the end" "wg0 is removed"
is_gone wg0
all_as_before "remove"

say "without a terminal nobody is asked, also where only the answer or only the question could not be seen"
no_server init
said "what to do" "--endpoint"
at_terminal "$LINERATE server init </dev/null"
ends 1
shows "what to do" "--endpoint"
at_terminal "$LINERATE server init 2>$WORK/said"
ends 1
said "what to do" "--endpoint"
all_as_before "no terminal"
