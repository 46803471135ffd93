#!/usr/bin/env bash
# timeout: 120
# A tunnel's file that is a mount of its own, as `-v ./wg1.conf:/etc/wireguard/wg1.conf` in a container: every command that
# writes it writes it in place, whole, and leaves nothing beside it.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
file=/etc/wireguard/wg1.conf
mkdir "$WORK/volume"
volume=$WORK/volume/wg1.conf
on_volume() { # the file is that of the volume, and alone
  expect "$1: the file of the volume" "$(stat -c '%d:%i' "$volume")" "$(stat -c '%d:%i' $file)"
  expect "$1: beside it" "wg1.conf" "$(ls -A /etc/wireguard | xargs)"
  expect "$1: owner" "$owner" "$(stat -c %u:%g "$volume")"
}
has() { grep -qF -- "$2" "$volume" || fail "$1: there is no '$2' in $(grep -v Key "$volume" | tr '\n' ' ')"; } # WHAT TEXT

for beside in "a folder" "a folder that cannot be written to"; do
  tunnel_file wg1 10.9.0.2/32 "ListenPort = 50001" "#! PublicEndpoint = 192.0.2.1"
  cat $file >"$volume"
  : >$file
  owner=1000:1000
  chown $owner "$volume"
  mount --bind "$volume" $file
  [[ $beside == "a folder" ]] || mount -o remount,ro /etc/wireguard

  say "in $beside: save"
  good linerate up wg1
  on h1 wg set wg1 listen-port 50011
  good linerate save wg1
  has "save" "ListenPort = 50011"
  on_volume "save"
  on h1 wg set wg1 listen-port 50012
  good wg-quick save wg1
  has "wg-quick save" "ListenPort = 50012"
  on_volume "wg-quick save"

  say "in $beside: clients"
  rm -f "$WORK/phone.conf"
  at h1 "$LINERATE" client add phone --output "$WORK/phone.conf" >"$WORK/out" 2>"$WORK/said" || fail "client add: $(cat "$WORK/said")"
  has "client add" "# Name = phone"
  on_volume "client add"
  at h1 "$LINERATE" client disable phone >"$WORK/out" 2>"$WORK/said" || fail "client disable: $(cat "$WORK/said")"
  has "client disable" "#~ "
  at h1 "$LINERATE" client enable phone >"$WORK/out" 2>"$WORK/said" || fail "client enable: $(cat "$WORK/said")"
  # A supervisor has not the right to write another's file.
  owner=0:0
  chown $owner "$volume"
  at h1 "$LINERATE" client set phone --expires 2s >"$WORK/out" 2>"$WORK/said" || fail "client set: $(cat "$WORK/said")"
  wait_for 20 "the supervisor to write that it has expired" grep -q "Expired = " "$volume"
  on_volume "expiry"
  at h1 "$LINERATE" client remove phone >"$WORK/out" 2>"$WORK/said" || fail "client remove: $(cat "$WORK/said")"
  on_volume "client remove"
  good linerate down wg1

  say "in $beside: SaveConfig"
  sed "s/^ListenPort.*/SaveConfig = true\nListenPort = 50001/" "$volume" >"$WORK/edited"
  cat "$WORK/edited" >"$volume"
  good wg-quick up wg1
  on h1 wg set wg1 listen-port 50013
  good wg-quick down wg1
  has "SaveConfig" "ListenPort = 50013"
  on_volume "SaveConfig"
  sed -i /SaveConfig/d "$volume"

  umount $file
  mount -o remount,rw /etc/wireguard
done

say "a writer that was killed has left the beginning of the file, and the copy"
tunnel_file wg1 10.9.0.2/32 "ListenPort = 50014"
cp -p $file /etc/wireguard/.wg1.conf.whole
head -c 100 /etc/wireguard/.wg1.conf.whole >"$volume"
mount --bind "$volume" $file
good linerate up wg1
expect "the port of the whole file" 50014 "$(on h1 wg show wg1 listen-port)"
good linerate save wg1
on h1 wg set wg1 listen-port 50015
good linerate save wg1
has "save" "ListenPort = 50015"
on_volume "the next that writes it"
good linerate down wg1
umount $file

say "a disk that is full leaves the file as it was"
mount -t tmpfs -o size=64k tmpfs "$WORK/volume"
tunnel_file wg1 10.9.0.2/32 "ListenPort = 50001"
{ cat $file && printf '# %.0s' {1..6000}; } >"$volume"
mount --bind "$volume" $file
good linerate up wg1
on h1 wg set wg1 listen-port 50016
head -c 60000 /dev/zero >"$WORK/volume/full" 2>/dev/null || true
before=$(sha256sum <"$volume")
for number in {1..400}; do printf '\n[Peer]\nPublicKey = %s\nAllowedIPs = 10.20.%d.%d/32\n' "$(head -c 32 /dev/urandom | base64)" $((number / 250)) $((number % 250)); done >"$WORK/peers"
on h1 wg addconf wg1 "$WORK/peers"
bad linerate save wg1
said "why" "space"
expect "the file" "$before" "$(sha256sum <"$volume")"
good linerate down wg1
