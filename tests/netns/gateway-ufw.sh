#!/usr/bin/env bash
# timeout: 180
# ufw on a gateway: the commands that `up` names make way, and so does --fix-firewall; `down` leaves ufw as it was, also after kills and a boot.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"
source "$(dirname "$0")/firewalls.bash"

need nft ufw
# Its settings, and its modules, in memory.
for folder in /etc/ufw /etc/default; do
  cp -a "$folder" "$WORK/${folder##*/}"
  mount --bind "$WORK/${folder##*/}" "$folder"
done
gateway_hosts
on h1 ufw --force enable >"$WORK/enabled" 2>&1 || skip "ufw does not work here: $(tail -n 1 "$WORK/enabled")"
on h1 ufw allow 22/tcp comment 'the site'
gateway_file "#! Gateway = up0" "#! Masquerade = both"

extra_firewalls() { cat /etc/ufw/user.rules /etc/ufw/user6.rules; }
remember_all
firewalls >"$WORK/firewalls"
stopped_then_mended ufw
on h1 ufw route delete allow in on wg1 out on up0
on h1 ufw route delete allow in on wg1 out on wg1
on h1 ufw delete allow 51820/udp
# ufw adds rules for `deny` to its chains with the first of its rules, and leaves them there.
firewalls >"$WORK/firewalls"
remember_all
fixed ufw

say "after a boot that nothing was taken down for"
good linerate up --fix-firewall wg1
kill_daemon
rm -rf /run/linerate
on h1 ufw reload
good linerate down wg1
firewalls_as_before "down without a ledger"
good linerate up --fix-firewall wg1
kill_daemon
rm -rf /run/linerate
good linerate up --fix-firewall wg1
good linerate down wg1
is_gone wg1
firewalls_as_before "up after a boot, then down"

say "a rule of somebody's stays"
on h1 ufw allow 51820/udp
firewalls >"$WORK/firewalls"
good linerate up --fix-firewall wg1
good linerate down wg1
is_gone wg1
firewalls_as_before "a rule of somebody's"

say "without its program"
mkdir "$WORK/none"
printf '#!/bin/sh\necho "ERROR: it is broken" >&2\nexit 1\n' >"$WORK/none/ufw"
chmod +x "$WORK/none/ufw"
PATH=$WORK/none:$PATH good linerate up --fix-firewall wg1
said "what is missing" 'the way is not opened: `ufw .*ended with 1: ERROR: it is broken'
good linerate reload wg1
new_sessions
reaches c1 198.18.0.1
good linerate down wg1
is_gone wg1
firewalls_as_before "a program that fails"
