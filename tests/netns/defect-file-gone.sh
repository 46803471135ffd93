#!/usr/bin/env bash
# D8: a tunnel goes down though its file has changed or gone since it came up: what was done is undone.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
tunnel_file wg1 0.0.0.0/0,::/0 "PostUp = touch $WORK/effect" "PostDown = rm $WORK/effect"
cp -p /etc/wireguard/wg1.conf "$WORK/original.conf"
if has_original; then
  good original up wg1
  rm /etc/wireguard/wg1.conf
  bad original down wg1
  said "the original" "does not exist"
  has_link wg1 || fail "the original: expected the interface to be left, it is gone"
  new_h1
  rm "$WORK/effect"
fi
for who in wg-quick linerate; do
  for change in "rm /etc/wireguard/wg1.conf" "tunnel_file wg1 10.9.0.2/32 'PreDown = exit 7'" \
    "eval echo nonsense >/etc/wireguard/wg1.conf" "new_mistake"; do
    new_mistake() { sed -i 's/^Address.*/Address = 10.9.0.1%24/' /etc/wireguard/wg1.conf; }
    cp -p "$WORK/original.conf" /etc/wireguard/wg1.conf
    remember
    good $who up wg1
    pings h1 10.9.0.2
    eval "$change"
    good $who down wg1
    is_gone wg1
    as_before "$who down after: $change"
    [[ ! -e $WORK/effect ]] || fail "$who: PostDown was not run"
  done
done
