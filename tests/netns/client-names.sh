#!/usr/bin/env bash
# timeout: 120
# Names of clients in any script, through every command, the page and its helper: what people write is what they see, can
# search, and what nothing else of the file depends on; files of clients have names that wg-quick and the phones' apps take.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/web.bash"
need jq
export LC_ALL=C.UTF-8 # for \u in this shell

host h1
server=/etc/wireguard/wg1.conf
key h1
(umask 077 && cat >$server) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.71.8.1/24
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1

[Peer]
# Name = Branch
PublicKey = $(wg genkey | wg pubkey)
AllowedIPs = 192.168.5.0/24
CONF
good linerate up wg1
client() { # WORD... : writes to $WORK/out and $WORK/said
  at h1 timeout 60 "$LINERATE" client "$@" >"$WORK/out" 2>"$WORK/said" || fail "client $*: $(cat "$WORK/said")"
}
names=("Müller's iPhone 📱" "ноутбук Ани" "田中　太郎" "מחשב של דנה" "👩‍👩‍👧 ❤️" '] [Peer] #! Quota = 0' '$(touch /tmp/x); `id`' "../../etc/passwd"
  "-rf" "<script>alert(1)</script>" "laptop" "a name that is longer than fifteen characters")

say "every name is one line of the file and changes no other line"
cp $server "$WORK/before"
client add --keep-key --output "$WORK" -- "${names[@]}"
for name in "${names[@]}"; do
  grep -qxF "# Name = $name" $server || fail "$name is not in the file"
done
diff "$WORK/before" <(head -n "$(wc -l <"$WORK/before")" $server) || fail "the rest of the file is another"
expect "peers of the running tunnel" $((1 + ${#names[@]})) "$(on h1 wg show wg1 peers | wc -l)"
expect "peers that wg-quick sees" $((1 + ${#names[@]})) "$(at h1 wg-quick strip wg1 2>/dev/null | grep -c '^\[Peer\]')"
mkdir "$WORK/plain"
(umask 077 && sed 's/^# Name = .*/# Name = x/' $server >"$WORK/plain/wg1.conf")
for tool in "$(type -P wg-quick)" "$LINERATE wg-quick"; do
  stripped() { at h1 $tool strip "$1" | grep -v '^#'; } # FILE : prints the lines that wg reads
  [[ ! $tool ]] || diff <(stripped $server) <(stripped "$WORK/plain/wg1.conf") || fail "$tool strip depends on a name"
done
client list --json
expect "the names" "$(printf '%s\n' "${names[@]}")" "$(jq -r '.[].name' "$WORK/out")"

say "each client has a file of its own, whose name wg-quick accepts"
expect "distinct files" ${#names[@]} "$(jq -r '.[].fileName' "$WORK/out" | sort -fu | wc -l)"
expect "the file of a plain name" laptop "$(jq -r '.[] | select(.name == "laptop").fileName' "$WORK/out")"
for file in $(jq -r '.[].fileName' "$WORK/out"); do
  grep -qxE '[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}' <<<"$file" || fail "no app takes $file"
  expect "the mode of $file" 600 "$(stat -c %a "$WORK/$file.conf")"
done
mullers=$(jq -r '.[0].fileName' "$WORK/out")
at h1 wg-quick strip "$WORK/$mullers.conf" >"$WORK/stripped" || fail "wg-quick strip $mullers.conf"
grep -q "^PublicKey = $(public h1)" "$WORK/stripped" || fail "wg-quick does not take $mullers.conf"
client export "$mullers"
grep -qxF "# Name = ${names[0]}" "$WORK/out" || fail "the name of the file does not lead to the client"
client show -- "${names[@]}"
expect "the clients shown" "$(printf '%s\n' "${names[@]}")" "$(grep -v '^ \|^$' "$WORK/out")"

say "searching, and the columns of the list"
for part in "müller" MULLER "АНИ" "太郎" "דנה" "📱" "${mullers:0:9}"; do
  client list "$part"
  expect "clients with $part" 1 "$(($(wc -l <"$WORK/out") - 1))"
done
client list
expect "columns in which states begin" 1 "$(python3 -c '
import sys, unicodedata
def width(text):
    text = text.replace("👩‍👩‍👧", "xx").replace("❤️", "xx")
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
print(len({width(line[:line.index("enabled")]) for line in sys.stdin if "enabled" in line}))' <"$WORK/out")"

say "a name that looks like another is taken, and an invisible character is refused with its Unicode name"
refused() { # WHAT PATTERN WORD...
  if at h1 timeout 60 "$LINERATE" client "${@:3}" >"$WORK/out" 2>"$WORK/said"; then fail "$1: expected a failure"; fi
  said "$1" "$2"
}
before=$(sha256sum <$server)
refused "another case" "already" add "MÜLLER'S IPHONE 📱"
refused "a decomposed letter" "already" add $'Mu\u0308ller\'s iPhone 📱'
refused "the name of another client's file" "already; its file has this name" add "$mullers"
refused "a line break" "a.n\[Peer\].*U\+000A line feed at column 2" add $'a\n[Peer]'
refused "a reversed text" "U\+202E control of the direction of text at column 5" add $'user\u202etoor'
refused "a space that is not seen" "U\+200B zero-width space at column 3" add $'ab\u200bc'
refused "65 characters" "65 characters" add "$(printf '家%.0s' {1..65})"
refused "a part of a name" "but .Müller's iPhone 📱'" remove müller
for verb in show remove rekey "set --note x" export; do
  # shellcheck disable=SC2086 # words
  refused "$verb with a client by both of its names" "$mullers is named twice" $verb "${names[0]}" "$mullers" --json
done
expect "the file" "$before" "$(sha256sum <$server)"

say "changes"
client rename "田中　太郎" "佐藤 花子"
client set "佐藤 花子" --note "Büro"
client disable "佐藤 花子" "$mullers"
client list buro
expect "the client with this note" "佐藤 花子  disabled" "$(sed -n 2p "$WORK/out" | grep -o '.*disabled')"
client enable "佐藤 花子" "$mullers"
client qr "$mullers" --output "$WORK/code.png"
if type -P zbarimg >/dev/null; then
  zbarimg -q --raw --oneshot "$WORK/code.png" | diff -B - "$WORK/$mullers.conf" || fail "the picture says something else"
fi
client remove -- -rf
refused "one that is gone" "there is no client" show -- -rf
good linerate reload wg1
said "reload" "nothing has changed"

say "completions: the client's name, or its file's if a shell would misread the name"
completes() { # WORD... : prints bash's completions of the last word, before readline quotes them
  PATH=$PROGRAMS:$PATH on h1 bash --norc -c '
    . <("$1" completions bash; cat "$2/packaging/completions/bash/linerate.names")
    compopt() { echo quoted; }
    COMP_WORDS=("${@:3}") COMP_CWORD=$(($# - 3))
    _linerate_with_names linerate
    printf "%s\n" "${COMPREPLY[@]}"' bash "$LINERATE" "$REPO" linerate client "$@"
}
expect "for a letter" $'quoted\nMüller\'s iPhone 📱' "$(completes show M)"
expect "within a quote" $'quoted\nMüller\'s iPhone 📱' "$(completes show "'Müller's i")"
expect "after it" "" "$(completes show "Müller\'s\ iPhone\ 📱" M)"
expect "a command" "touch-tmp-0rbq8" "$(completes show touch)"

say "metrics"
at h1 "$LINERATE" metrics >"$WORK/metrics"
grep -qF "\"${names[0]}\"" "$WORK/metrics" || fail "no metric has the name: $(grep -m 3 name "$WORK/metrics")"

say "the page"
page --write
log_in
get() { on h1 curl -s -b "$WORK/jar" -G "$@"; }
body() { sed 's/<[^>]*>//g'; }
get "$PAGE/tunnels/wg1" --data-urlencode "filter=MÜLLER" >"$WORK/page"
grep -qF "Müller's iPhone 📱" <(sed "s/&#39;/'/g" "$WORK/page") || fail "the page does not find Müller's iPhone: $(body <"$WORK/page")"
! grep -qF "ноутбук" "$WORK/page" || fail "the page shows others, too"
get "$PAGE/tunnels/wg1" >"$WORK/all"
! grep -qF "<script>alert" "$WORK/all" || fail "a name is a script"
peer=$PAGE$(grep -m 1 -oP "href=\"\K/tunnels/wg1/peers/[^\"]+" "$WORK/page" | sed -n 1p)
get -D "$WORK/head" "$peer/file" >"$WORK/saved"
expect "the name that a browser saves it by" "attachment; filename=\"$mullers.conf\"" "$(tr -d '\r' <"$WORK/head" | sed -n 's/^content-disposition: //Ip')"
diff "$WORK/saved" "$WORK/$mullers.conf" || fail "the page has another file"
post() { on h1 curl -s -b "$WORK/jar" -d "form=$form" "$@"; }
post "$PAGE/tunnels/wg1/add" --data-urlencode "name=Zoë & \"José\" 🏠" -d keep=on >"$WORK/page"
grep -qF 'Zoë &amp; &quot;José&quot; 🏠' "$WORK/page" || fail "the page did not add it: $(body <"$WORK/page")"
grep -qxF '# Name = Zoë & "José" 🏠' $server || fail "what the page added is not in the file"
on h1 curl -s -o /dev/null -b "$WORK/jar" -d "form=$form" --data-urlencode "name=Ольга" "$peer/rename"
grep -qx '# Name = Ольга' $server || fail "the page did not rename it"
grep -qF 'renamed "Müller'"'"'s iPhone 📱" of wg1' "$SCENARIO_LOGS/web.log" || fail "the audit: $(tail -n 3 "$SCENARIO_LOGS/web.log")"
