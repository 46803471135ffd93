#!/usr/bin/env bash
# Keys in files of their own and in systemd's credentials; without them `up` says which file, and does nothing.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
preshared both
on h2 wg set wg2 peer "$(public h1)" preshared-key "$WORK/both.psk"
mkdir -m 700 /etc/wireguard/keys "$WORK/credentials"
export CREDENTIALS_DIRECTORY=$WORK/credentials
cp "$WORK/h1.key" /etc/wireguard/keys/own
cp "$WORK/h1.key" "$CREDENTIALS_DIRECTORY/own-key"
cp "$WORK/both.psk" "$CREDENTIALS_DIRECTORY/both"
file() { # PRIVATE-KEY-LINE PRESHARED-KEY-LINE
  tunnel_file wg1 10.9.0.2/32
  sed -i "s|^PrivateKey.*|$1|; s|^PublicKey.*|&\n$2|" /etc/wireguard/wg1.conf
}
for who in wg-quick linerate; do
  remember
  for lines in "#! PrivateKeyFile = $WORK/h1.key|#! PresharedKeyFile = $WORK/both.psk" \
    "#! PrivateKeyFile = keys/own|#! PresharedKeyFile = credential:both" \
    "#! PrivateKeyFile = credential:own-key|#! PresharedKeyFile = $WORK/both.psk"; do
    file "${lines%|*}" "${lines#*|}"
    good $who up wg1
    expect "$who: the key" "$(cat "$WORK/h1.key")" "$(on h1 wg show wg1 private-key)"
    pings h1 10.9.0.2
    good linerate reload wg1
    said "$who" "nothing has changed"
    good $who save wg1
    grep -qF "$(cat "$WORK/h1.key")" /etc/wireguard/wg1.conf && fail "$who: save has put the private key into the file"
    grep -qF "$(cat "$WORK/both.psk")" /etc/wireguard/wg1.conf && fail "$who: save has put the preshared key into the file"
    grep -qrF "$(cat "$WORK/h1.key")" /run/linerate && fail "$who: the private key is in /run/linerate"
    pings h1 10.9.0.2
    good $who down wg1
    is_gone wg1
    as_before "$who down"
  done

  say "$who: a key file that everybody can read"
  mkdir -p "$WORK/open"
  install -m 644 "$WORK/h1.key" "$WORK/open/own"
  install -m 644 "$WORK/both.psk" "$WORK/open/both"
  chmod 755 "$WORK/open"
  file "#! PrivateKeyFile = $WORK/open/own" "#! PresharedKeyFile = $WORK/open/both"
  good $who up wg1
  said "$who, the private key" "Warning: .*$WORK/open/own"
  said "$who, the preshared key" "Warning: .*$WORK/open/both"
  good $who down wg1
  is_gone wg1

  file "#! PrivateKeyFile = keys/absent" ""
  bad $who up wg1
  said "$who" "/etc/wireguard/keys/absent"
  as_before "$who without the file"
  echo "no key" >/etc/wireguard/keys/wrong
  file "#! PrivateKeyFile = keys/wrong" ""
  bad $who up wg1
  said "$who" "keys/wrong does not contain a key"
  as_before "$who without a key"
  file "#! PrivateKeyFile = credential:absent" ""
  bad $who up wg1
  said "$who" "absent"
  (
    unset CREDENTIALS_DIRECTORY
    bad $who up wg1
    said "$who" "CREDENTIALS_DIRECTORY is not set"
  )
  as_before "$who without the credential"
done
