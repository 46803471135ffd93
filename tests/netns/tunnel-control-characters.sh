#!/usr/bin/env bash
# Whatever a file says, nothing that `linerate` and `wg-quick` print of it can move the cursor or colour the terminal.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
evil=$'\e]0;evil\a\r\xe2\x80\xae'
printed() { # WHAT : the words of the last turn have the text, and none of its control characters
  grep -q "evil" "$WORK/said" || fail "$1: it says nothing of the text: $(cat -v "$WORK/said")"
  ! grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xe2\x80\xae' "$WORK/said" || fail "$1: $(cat -v "$WORK/said")"
  say "$1: $(grep -m 1 evil "$WORK/said")"
}

for who in wg-quick linerate; do
  tunnel_file wg1 10.9.0.2/32 "PostUp = true '$evil'" "PreDown = false '$evil'"
  sed -i "s/^\[Peer\]/&\n# Name = router$evil/" /etc/wireguard/wg1.conf
  good $who up wg1 $([[ $who == wg-quick ]] || echo --verbose)
  printed "$who up, a command that is run"
  good linerate status
  printed "status, the name of a peer"
  bad $who down wg1
  printed "$who down, a command that fails"
  is_gone wg1
  for line in "MTU = $evil" "$evil" "Table = $evil" "#! RouteConflict = $evil" "$evil = 1" "Address = $evil"; do
    tunnel_file wg1 10.9.0.2/32 "$line" "MTU = evil"
    bad $who up wg1
    printed "$who, the mistake in '$(tr -d '[:cntrl:]' <<<"$line")'"
  done
done
tunnel_file wg1 10.9.0.2/32 "PostUp = true '$evil'"
good linerate plan wg1
printed "plan"
bad linerate up "$evil"
printed "an interface of that name"
