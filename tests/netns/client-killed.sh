#!/usr/bin/env bash
# timeout: 120
# `client add` that is killed at any of 25 moments, two administrators at once, and a full disk leave the old or the new file.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
two_hosts
server=/etc/wireguard/wg1.conf
key h1
(umask 077 && cat >$server) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.71.8.1/24, fd71::1/64
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
CONF
good linerate up wg1
client() { at h1 timeout 60 "$LINERATE" client "$@" >"$WORK/out" 2>"$WORK/said"; }
in_file() { grep -c '^\[Peer\]' $server || true; }
peers() { on h1 wg show wg1 peers | wc -l; }

say "how long one takes"
before=${EPOCHREALTIME/./}
client add first || fail "client add: $(cat "$WORK/said")"
took=$((${EPOCHREALTIME/./} - before))
old=0 new=0 pids=()
for moment in {1..25}; do
  cp $server "$WORK/before"
  # The moments are spread over the time that it takes, and a little more.
  nsenter --net=/run/netns/h1 "$LINERATE" client add "c$moment" >"$WORK/out" 2>"$WORK/said" &
  pid=$!
  sleep "$(awk -v took="$took" -v moment="$moment" 'BEGIN { printf "%.6f", took * moment / 40 / 1e6 }')"
  kill -KILL $pid 2>/dev/null || true
  wait $pid 2>/dev/null || true
  if cmp -s $server "$WORK/before"; then
    old=$((old + 1))
  else
    new=$((new + 1))
    head -c "$(stat -c %s "$WORK/before")" $server | cmp -s - "$WORK/before" || fail "moment $moment: the file lost something"
    tail -n 1 $server | grep -q '^AllowedIPs = ' || fail "moment $moment: the file ends in the middle: $(tail -n 3 $server)"
  fi
  client list || fail "moment $moment: $(cat "$WORK/said")"
done
note "killed at 25 moments: $old times the old file, $new times the new one"
client add last || fail "after the kills: $(cat "$WORK/said")"
expect "peers of the running tunnel" "$(in_file)" "$(peers)"
good linerate reload wg1
said "reload" "nothing has changed"

say "two administrators at once"
count=$(in_file)
for who in a b; do
  (for number in {1..10}; do at h1 timeout 60 "$LINERATE" client add "$who$number" >/dev/null 2>>"$WORK/said.$who" || exit 1; done) &
  pids[${#pids[@]}]=$!
done
for pid in "${pids[@]}"; do wait "$pid" || fail "an administrator failed: $(cat "$WORK"/said.*)"; done
expect "clients in the file" $((count + 20)) "$(in_file)"
expect "addresses in the file" $((count + 20)) "$(grep -o '10\.71\.8\.[0-9]*/32' $server | sort -u | wc -l)"
expect "peers of the running tunnel" $((count + 20)) "$(peers)"

say "a full disk"
at h1 "$LINERATE" down wg1
mount -t tmpfs -o size=64k,mode=0700 tmpfs "$WORK/bin"
mount --bind "$WORK/bin" /etc/wireguard
(umask 077 && cat >$server) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.71.8.1/24
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
CONF
client add one || fail "with space: $(cat "$WORK/said")"
head -c 1M /dev/zero >/etc/wireguard/filler 2>/dev/null || true
before=$(sha256sum <$server)
if client add two; then fail "a full disk: expected a failure"; fi
said "a full disk" "No space left on device"
expect "the file" "$before" "$(sha256sum <$server)"
expect "files in the folder" "filler wg1.conf" "$(find /etc/wireguard -type f -printf '%f\n' | sort | xargs)"
rm /etc/wireguard/filler
client add two || fail "with space again: $(cat "$WORK/said")"
