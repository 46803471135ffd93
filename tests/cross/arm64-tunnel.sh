#!/usr/bin/env bash
# timeout: 180
# Tunnels between a daemon for arm64, emulated, and the one for this machine: handshakes, packets of all sizes, files.
source "$(dirname "$0")/../netns/lib.sh"
need nc qemu-aarch64
read -ra daemons <<<"${ARM64_DAEMONS:-}"
((${#daemons[@]})) || skip "there is no linerated for arm64 (ARM64_DAEMONS; ./test cross builds two)"

two_hosts
key h1 h2
head -c 3000000 /dev/urandom >"$WORK/file"
for program in "${daemons[@]}"; do
  say "=== $program"
  daemon h1 wg1
  # The emulator has no seccomp. A program that is not static finds its libraries beside Debian's cross compiler.
  LINERATE_SECCOMP=off daemon h2 wg2 "$(type -P qemu-aarch64)" -L /usr/aarch64-linux-gnu "$program" -f
  wire none
  for outside in v4 v6; do
    point $outside
    for address in 10.9.0.2 fd09::2; do pings h1 $address -c 2 && pings h1 $address -c 2 -s 1372; done
    for address in 10.9.0.1 fd09::1; do pings h2 $address -c 2 && pings h2 $address -c 2 -s 1372; done
  done
  send_file h1 h2 10.9.0.2 "$WORK/file"
  send_file h2 h1 fd09::1 "$WORK/file"
  stop_daemon wg2
  stop_daemon wg1
done
