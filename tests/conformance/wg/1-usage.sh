# Usage, help, versions, and the number of operands.

devices
for command in showconf set setconf addconf syncconf genkey genpsk pubkey; do
  [[ $command == set ]] || same "usage: $command with too many operands" $command a b c d
done
for command in showconf setconf addconf syncconf; do
  same "usage: $command without operands" $command
  same "usage: $command --help" $command --help
done
same "usage: show with too many operands" show a b c
same "usage: show interfaces takes nothing else" show interfaces peers
for word in -h --help help; do
  same "usage: show $word is no failure" show $word
  same "usage: $word lists the commands" $word
  same "usage: $word with an operand is no command" $word show
done
same "usage: an unknown command" frobnicate
same "usage: an empty command" ""
same "usage: commands are case-sensitive" Show
same "usage: -v with an operand is no command" -v x

SET_USAGE='Usage: wg set <interface> [listen-port <port>] [fwmark <mark>] [private-key <file path>] [peer <base64 public key> [remove] [preshared-key <file path>] [endpoint <ip>:<port>] [persistent-keepalive <interval seconds>] [allowed-ips [+|-]<ip1>/<cidr1>[,[+|-]<ip2>/<cidr2>]...] ]...
'
for operands in "" --help wg0; do
  CODE=1 ERR=$SET_USAGE
  # shellcheck disable=SC2086
  ours "usage: set ${operands:-without operands} (with + and -)" set $operands
done
for word in -v --version version; do
  OUT='wireguard-tools v1.0.20260223 - https://git.zx2c4.com/wireguard-tools/
'
  ours "usage: $word is the version that it behaves like" $word
done

# As a command of linerate it is the same, but for its name.
under_linerate() { # TITLE ARGUMENT...
  local title=wg/$1
  shift
  chosen "$title" || return
  perform reference "$@"
  mkdir -p "$PLACE/seen/ours"
  (cd "$FILES" && "$LINERATE" wg "$@" >"$PLACE/seen/ours/out" 2>"$PLACE/seen/ours/err" </dev/null && echo 0 || echo $?) >"$PLACE/seen/ours/code"
  expect_reference
  sed -i 's/^Usage: wg /Usage: linerate wg /' "$PLACE"/seen/expected/{out,err}
  rm -f "$PLACE"/seen/{expected,ours}/{asked,sockets}
  judge "$title"
}
under_linerate "linerate wg: without a command"
under_linerate "linerate wg: --help" --help
under_linerate "linerate wg: show --help" show --help
under_linerate "linerate wg: a command that is none" frobnicate --version
under_linerate "linerate wg: a name that begins with a dash" showconf --wg0
