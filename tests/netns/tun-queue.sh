#!/usr/bin/env bash
# Another user gets no queue of a tunnel's interface, and so none of its packets, though everybody may open the TUN driver.
source "$(dirname "$0")/lib.sh"
need setpriv perl
setpriv --reuid 1000 --regid 1000 --clear-groups true 2>/dev/null || skip "no right to become another user (run it as root)"
mknod -m 666 "$WORK/tun" c 10 200 && mount --bind "$WORK/tun" /dev/net/tun
two_hosts
export LINERATE_HELPERS=always # as if there were four cores: an interface of several queues
tunnel v4
attach() { # COMMAND... : asks for a queue of wg1 (TUNSETIFF), with the flags that it has
  nsenter --net=/run/netns/h1 "$@" perl -e '
    open(my $tun, "+<", "/dev/net/tun") or die "cannot open the driver: $!\n";
    my $request = pack("a16 S x22", "wg1", 0x5101); # IFF_TUN, IFF_NO_PI, IFF_MULTI_QUEUE, IFF_VNET_HDR
    print ioctl($tun, 0x400454ca, $request) ? "attached" : "$!";'
}
expect "root, who owns it" attached "$(attach)"
expect "another user" "Operation not permitted" "$(attach setpriv --reuid 1000 --regid 1000 --clear-groups)"
expect "root of another user namespace" "Operation not permitted" \
  "$(attach setpriv --reuid 1000 --regid 1000 --clear-groups unshare --user --map-root-user)"
