#!/usr/bin/env bash
# Without root, every verb says that permission is denied and to run it as root, never that the file does not exist. A
# name with `.conf` is explained. No message ends in the number of an error of the system.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need setpriv
setpriv --reuid nobody true 2>/dev/null || skip "no right to become nobody (run it as root)"

hosts_with_files
tunnel_file wg1 10.9.0.2/32
# A copy of the file and of the program where everybody can read them.
folder=$WORK/open
readable=$folder/wg1.conf
mkdir "$folder"
cp /etc/wireguard/wg1.conf "$readable"
cp "$LINERATE" "$folder/linerate"
chmod -R a+rX "$folder"
chmod o+x "$WORK"

as_nobody() { # ARGUMENT... : the words go into $WORK/said
  STATUS=0
  at h1 setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups "$folder/linerate" "$@" >"$WORK/said" 2>&1 || STATUS=$?
  ((STATUS == 1)) || fail "$*: expected the exit code 1, saw $STATUS: $(cat "$WORK/said")"
  said "$*" "ermission denied; run as root \(sudo\)"
  ! grep -E "does not exist|os error" "$WORK/said" || fail "$*: $(cat "$WORK/said")"
}

say "the folder is closed"
for verb in up plan down reload save; do as_nobody $verb wg1; done
say "the file can be read, the host cannot be changed"
for verb in up down reload save; do as_nobody $verb "$readable"; done
say "the tunnel is up, and its ledger is root's"
good linerate up wg1
for verb in up down reload save; do
  as_nobody $verb wg1
  as_nobody $verb "$readable"
done
good linerate down wg1
is_gone wg1

say "a name with .conf"
bad linerate up wg1.conf
said "up wg1.conf" "does not exist; did you mean \`wg1'\?"
(cd "$folder" && bad linerate up wg1.conf)
said "up wg1.conf beside the file" "does not exist; did you mean \`./wg1.conf'\?"
bad linerate up wg7
said "up wg7" "\`/etc/wireguard/wg7.conf' does not exist"
