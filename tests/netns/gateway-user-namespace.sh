#!/usr/bin/env bash
# A gateway in a user namespace, as in a rootless container: its table goes into one request that is larger than a socket's usual buffer.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
need nft perl unshare

mount -t tmpfs -o mode=0755 tmpfs /var/lib
# So many clients, each with a destination of its own, that the request has some 300 KB: a buffer has 212,992 bytes
# (net.core.wmem_default), and outside of the first user namespace no more than twice net.core.wmem_max.
clients() { # COUNT
  {
    printf '%s\n' "[Interface]" "PrivateKey = $(wg genkey)" "Address = 10.9.0.1/16" "#! Gateway = up0" "#! Masquerade = ipv4"
    perl -MMIME::Base64 -e '
      open my $random, "<", "/dev/urandom" or die;
      for my $n (0 .. $ARGV[0] - 1) {
        read $random, my $key, 32;
        printf "[Peer]\nPublicKey = %sAllowedIPs = 10.9.%d.%d/32\n", encode_base64($key), $n / 200 + 1, $n % 200 + 1;
        printf "#! Destinations = 10.%d.%d.0/24\n", 100 + $n / 200, $n % 200;
      }' "$1"
  } | (umask 077 && cat >/etc/wireguard/wg1.conf)
}
in_namespace() { # COMMANDS : with all that a tunnel needs, and the sizes of its requests in $WORK/sent
  unshare --user --map-root-user --net --mount bash -euc "
    ip link set lo up
    ip link add up0 type veth peer name other
    ip address add 203.0.113.1/24 dev up0
    ip link set up0 up
    $1" >"$WORK/said" 2>&1
}
clients 7000
in_namespace true || skip "no right to make a user namespace in the scenario"
in_namespace "'$LINERATE' up wg1; nft list table inet linerate_gateway-wg1 | grep -c '10\\.9\\.'; '$LINERATE' down wg1" ||
  fail "up and down in a user namespace: $(tail -n 5 "$WORK/said" | tr '\n' ' ')"
say "up and down: $(tail -n 3 "$WORK/said" | tr '\n' ' ')"
if type -P strace >/dev/null; then
  in_namespace "strace -o '$WORK/trace' -e trace=sendto,sendmsg,setsockopt '$LINERATE' up wg1; '$LINERATE' down wg1" || fail "$(tail -n 5 "$WORK/said")"
  grep -q 'SO_SNDBUFFORCE.*EPERM' "$WORK/trace" || fail "the buffer was not too small, or could be forced"
  grep -qE 'SO_SNDBUF, .* = 0' "$WORK/trace" || fail "the buffer was not made larger"
  expect_at_least "the largest request" 212992 "$(grep -oE 'sendto\(.* = [0-9]+$' "$WORK/trace" | grep -oE '[0-9]+$' | sort -n | tail -n 1)"
fi
