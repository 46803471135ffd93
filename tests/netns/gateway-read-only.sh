#!/usr/bin/env bash
# timeout: 60
# Where /proc/sys is read-only, as in containers, a gateway comes up, names what is missing, and works once it is there.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"

need nft
gateway_hosts
gateway_file "#! Gateway = up0" "#! Masquerade = both"
remember_all
contained() { # VERB
  STATUS=0
  nsenter --net=/run/netns/h1 unshare --mount bash -c '
    mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys || exit 77
    exec "$@"' - "$LINERATE" "$1" wg1 >"$WORK/said" 2>&1 || STATUS=$?
  ((STATUS != 77)) || skip "/proc/sys cannot be made read-only here"
  expect "$1 in a container: status" 0 "$STATUS"
}
contained up
for name in net.ipv4.conf.{wg1,up0}.forwarding; do said "what is missing" "$name cannot be set to 1"; done
said "what a container is started with" "--sysctl net.ipv4.ip_forward=1"
new_sessions
no_ping c1 198.18.0.1
on h1 sysctl -qw net.ipv4.conf.wg1.forwarding=1 net.ipv4.conf.up0.forwarding=1
pings c1 198.18.0.1
contained reload
# What it could not set it does not set back.
contained down
is_gone wg1
on h1 sysctl -qw net.ipv4.conf.up0.forwarding=0
all_as_before "down"

say "what it could not set stays as the owner set it, also where it could set it back by then"
contained up
on h1 sysctl -qw net.ipv4.conf.up0.forwarding=1
good linerate down wg1
is_gone wg1
expect "forwarding of up0" 1 "$(sysctl_of net.ipv4.conf.up0.forwarding)"
on h1 sysctl -qw net.ipv4.conf.up0.forwarding=0
gateway_file "#! Gateway = off"
good linerate up wg1
gateway_file "#! Gateway = up0" "#! Masquerade = ipv4"
contained reload
on h1 sysctl -qw net.ipv4.conf.up0.forwarding=1
good linerate down wg1
is_gone wg1
expect "forwarding of up0 after a reload" 1 "$(sysctl_of net.ipv4.conf.up0.forwarding)"
