#!/usr/bin/env bash
# Characters of a file that are not seen, or taken for others, are named with their place; UTF-16 is read.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
file=/etc/wireguard/wg1.conf
nbsp=$'\xc2\xa0' zero=$'\xe2\x80\x8b' bom=$'\xef\xbb\xbf' cyrillic_a=$'\xd0\x90' cyrillic_i=$'\xd1\x96' wide=$'\xef\xbc\x8f'
named() { # WHAT SED-COMMAND PATTERN : the file that is changed so is refused with these words, by both
  local who
  tunnel_file wg1 10.9.0.2/32 "MTU = 1400" "#! KillSwitch = false"
  sed -i "$2" $file
  for who in linerate wg-quick; do
    bad $who up wg1
    said "$who: $1" "wg1.conf:[0-9]+:.*$3"
    ! grep -qP '\xc2\xa0|\xe2\x80\x8b|\xef\xbb\xbf|[\x00-\x08\x0b-\x1f]' "$WORK/said" || fail "$1: it is printed as it is"
  done
}

named "a no-break space before a value" "s/^MTU = /MTU =$nbsp/" 'U\+00A0 no-break space at column 6'
named "a no-break space within a line" "s|^AllowedIPs = .*|AllowedIPs = 10.9.0.2/32,${nbsp}fd09::2/128|" 'U\+00A0 no-break space at column 26'
named "a no-break space at the end" "s/^MTU = 1400/&$nbsp/" 'U\+00A0 no-break space at column 11'
named "a line with nothing but that" "s/^MTU = .*/$nbsp/" 'U\+00A0 no-break space at column 1'
named "a zero-width space in a keyword" "s/^Address/Add${zero}ress/" 'U\+200B zero-width space at column 4'
named "a byte order mark within the file" "s/^\[Peer/$bom&/" 'U\+FEFF byte order mark at column 1'
named "a Cyrillic letter" "s/^AllowedIPs/${cyrillic_a}llowedIPs/" 'U\+0410 Cyrillic letter that looks like `A` at column 1'
named "a full-width sign" "s|^\(AllowedIPs.*\)/32|\1${wide}32|" 'U\+FF0F full-width character that looks like `/`'
named "a letter of Latin-1" "s/^MTU = /MTU = \xe9/" 'a byte that is not UTF-8 \(0xE9\) at column 7'
named "a control character" $'s/^MTU = /MTU = \e/' 'U\+001B escape at column 7'
named "a setting of ours that would be a comment" "s/^#! Kill/#!${nbsp}Kill/" 'KillSwitch is not set.*U\+00A0 no-break space at column 3'
named "and by a letter" "s/^#! Kill/#! K${cyrillic_i}ll/" 'KillSwitch is not set.*U\+0456 Cyrillic letter that looks like `i` at column 5'

say "in comments and names they are accepted"
tunnel_file wg1 10.9.0.2/32
sed -i "s/^\[Peer\]/# Zo\xc3\xab's${nbsp}router\n&\n# Name = Zo\xc3\xab/" $file
good linerate up wg1
good linerate down wg1

say "in a command they are told of"
tunnel_file wg1 10.9.0.2/32 "PostUp = true${nbsp}x || true"
good linerate up wg1
said "a no-break space in a command" 'warning: in the command is U\+00A0 no-break space at column 14'
good linerate down wg1

for order in LE BE; do
  say "UTF-16$order"
  tunnel_file wg1 10.9.0.2/32 "MTU = 1400" "ListenPort = 50001"
  cp $file "$WORK/plain"
  { printf %s "$bom" && cat "$WORK/plain"; } | LC_ALL=C.UTF-8 iconv -f UTF-8 -t UTF-16$order >$file
  good linerate up wg1
  pings h1 10.9.0.2
  good linerate reload wg1
  said "reload" "nothing has changed"
  on h1 wg set wg1 listen-port 50011
  good linerate save wg1
  tail -c +4 $file | diff "$WORK/plain" - >"$WORK/difference" && fail "nothing was saved"
  expect "what is saved" "< ListenPort = 50001 > ListenPort = 50011" "$(grep '^[<>]' "$WORK/difference" | xargs -d '\n')"
  good linerate down wg1
  iconv -f UTF-8 -t UTF-16$order "$WORK/plain" >$file
  bad linerate up wg1
  said "without a byte order mark" 'wg1.conf:1:1: the file seems to be UTF-16, and cannot be read \(save it as UTF-8\)'
  expect "lines about it" 1 "$(grep -c wg1.conf "$WORK/said")"
done
