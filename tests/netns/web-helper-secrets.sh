#!/usr/bin/env bash
# A helper without --write gives no keys to the page, not even to an intruder in the page, unless it has --secrets.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/web.bash"
need jq

host h1
key h1
(umask 077 && cat >/etc/wireguard/wg1.conf) <<CONF
[Interface]
PrivateKey = $(cat "$WORK/h1.key")
Address = 10.71.8.1/24
ListenPort = 50001
#! PublicEndpoint = 192.0.2.1
CONF
good linerate up wg1
at h1 "$LINERATE" client add phone --keep-key --json >"$WORK/phone.json"
phone=$(jq -r '.[0].publicKey' "$WORK/phone.json" | tr '+/' '-_' | tr -d '=')
file='{"ask":"file","tunnel":"wg1","client":"phone"}'
for options in "" --secrets --write; do
  say "a helper with ${options:-no option}"
  rm -f "$HELPER"
  page ${options:+"$options"}
  log_in
  if [[ $options ]]; then
    ask <<<"$file" | grep -q PrivateKey || fail "the helper gives no file"
    expect "the file" 200 "$(told -b "$WORK/jar" "$PAGE/tunnels/wg1/peers/$phone/file")"
  else
    expect "what the helper says" "the page may not see keys: its helper was not started with --write or --secrets" "$(ask <<<"$file" | jq -r .message)"
    for what in file code; do
      expect "the $what" 409 "$(on h1 curl -s -o "$WORK/answer" -w '%{http_code}' -b "$WORK/jar" "$PAGE/tunnels/wg1/peers/$phone/$what")"
      grep -q "the page may not see keys" "$WORK/answer" || fail "the page does not say why"
      ! grep -q PrivateKey "$WORK/answer" || fail "the page shows a key"
    done
  fi
  stop_daemon web
  stop_daemon helper
done
