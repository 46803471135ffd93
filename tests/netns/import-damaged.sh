#!/usr/bin/env bash
# A damaged state of another tool is refused by its file's name, and nothing is written; it is never taken for another tool's.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/import.bash"

import_hosts
need sqlite3
old_files >"$WORK/before"

damaged() { # KIND FILE : each damage of the file is refused by its name
  local path=$WORK/$1/$2 damage
  for damage in empty half zeros removed-to-folder; do
    rm -rf "${WORK:?}/$1"
    sample "$1"
    case $damage in
    empty) : >"$path" ;;
    half) truncate -s $(($(stat -c %s "$path") / 2)) "$path" ;;
    zeros) dd if=/dev/zero of="$path" bs="$(stat -c %s "$path")" count=1 status=none ;;
    removed-to-folder) rm "$path" && mkdir "$path" ;;
    esac
    say "$1: $2: $damage"
    refused_import "${2##*/}" "$WORK/$1" --endpoint vpn.example.com
    refused_import "${2##*/}" "$WORK/$1" --endpoint vpn.example.com --dry-run --json
  done
}
damaged wg-easy-14 wg0.json
damaged wg-easy-15 wg-easy.db
damaged wireguard-ui db/server/interfaces.json
damaged wireguard-ui db/clients/dc1ud41ksdudemp8e921.json
damaged wgdashboard db/wgdashboard.db

rm -rf "${WORK:?}/wg-easy-14"
sample wg-easy-14
sed -i '/"privateKey"/a "jc": 4, "s1": 86, "h1": 1457645871,' "$WORK/wg-easy-14/wg0.json"
refused_import "AmneziaWG" "$WORK/wg-easy-14"
diff "$WORK/before" <(old_files) >"$WORK/diff" || fail "something was written: $(cat "$WORK/diff")"

# An undamaged file is imported although it has lines of other programs.
rm -rf "${WORK:?}/wg-easy-14"
sample wg-easy-14
echo 'PASSWORD_HASH=$2a$12$I1IP8y6p2PuqfM2VAyEHSeQrCK0k5FqNGPZJ5kHtvT1gKPz3J8nXe' >>"$WORK/wg-easy-14/wg-easy.env"
import "$WORK/wg-easy-14" --dry-run
