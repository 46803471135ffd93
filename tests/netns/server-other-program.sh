#!/usr/bin/env bash
# timeout: 300
# The original wg-quick has brought up a server's tunnel, with wireguard-go and with linerated: a client that is disabled or
# removed can no longer connect, an added one can, and a command fails and says so if it sets what only linerate enforces.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/servers.bash"
has_original || skip "wg-quick or wireguard-go is not installed"

internet
file=/etc/wireguard/wg0.conf
key ann bob
client() { good linerate client "$@"; }
no_client() { bad linerate client "$@"; }
key_of() { at h1 "$LINERATE" client show "$1" --json | sed -n 's/.*"publicKey": "\(.*\)".*/\1/p'; } # NAME
runs() { at h1 wg show wg0 peers | grep -qxF -- "$1"; } # KEY
is_in() { runs "$1" || fail "$2: not let in"; say "$2: let in"; }
is_out() { ! runs "$1" || fail "$2: still let in"; say "$2: not let in"; }
laptop() { WG_QUICK_USERSPACE_IMPLEMENTATION=wireguard-go PATH=$WORK/bin:$PATH at laptop timeout 60 "$WORK/bin/wg-quick" "$1" "$WORK/wg9.conf" >>"$SCENARIO_LOGS/said.log" 2>&1; }
server_address() { sed -n 's/^Address = \([0-9.]*\).*/\1/p' $file; }

for engine in wireguard-go "$TUNNEL_DAEMON"; do
  say "wg-quick with ${engine##*/}"
  ENGINE=$engine
  server init --no-start --dns 9.9.9.9
  client add c1 --output "$WORK/wg9.conf"
  client add c2 --pubkey "$(public ann)"
  good original up wg0
  sed -i /^DNS/d "$WORK/wg9.conf" # there is no resolvconf here
  laptop up
  pings laptop "$(server_address)"
  c1=$(key_of c1)

  client disable c1
  said "the words" "^c1: disabled$"
  is_out "$c1" c1
  no_ping laptop "$(server_address)"
  client enable c1
  is_in "$c1" c1
  wait_for 10 "c1 to be let in" at laptop ping -n -c 1 -W 1 "$(server_address)"
  client disable c1
  is_out "$c1" c1
  # An edit that the tunnel did not follow, and the same command again.
  at h1 wg set wg0 peer "$c1" allowed-ips "$(sed -n 's|^Address = \([0-9.]*\).*|\1/32|p' "$WORK/wg9.conf")"
  client disable c1
  is_out "$c1" c1
  laptop down && rm "$WORK/wg9.conf"

  client remove c2
  is_out "$(public ann)" c2
  client add c3 --pubkey "$(public bob)"
  is_in "$(public bob)" c3
  client rename c3 c4
  is_in "$(public bob)" c4
  client rekey c4 --now --pubkey "$(public ann)"
  is_in "$(public ann)" c4
  is_out "$(public bob)" "the old key"

  if [[ $engine == wireguard-go ]]; then
    no_client set c4 --expires 30d
    said "what is not kept" "only linerated keeps Expires"
    no_client rekey c4 --pubkey "$(public bob)"
    said "what is not kept" "c4 has a new key in $file$"
  else
    client set c4 --quota 50G
    client rekey c4 --pubkey "$(public bob)"
    is_in "$(public bob)" "the new key"
  fi
  no_client set c4 --dest 192.168.1.0/24
  said "what is not kept" "only linerate keeps Destinations.* c4"
  no_server set --port 443
  said "what has not followed" "another program brought wg0 up"
  server set --client-mtu 1380
  good original down wg0
  is_gone wg0
  client remove c4
  server remove --yes
done

say "a tunnel of that name that is another one"
server init --no-start --dns 9.9.9.9
client add c1 --pubkey "$(public ann)"
cp $file "$WORK/kept.conf"
sed -i "s|^PrivateKey.*|PrivateKey = $(wg genkey)|" $file
ENGINE=wireguard-go good original up wg0
cp "$WORK/kept.conf" $file
no_client disable c1
said "the words" "another private key"
is_in "$(public ann)" "c1 of the other tunnel"
good original down wg0
is_gone wg0

say "a tunnel that linerate brought up from another file"
mkdir -p "$WORK/other"
at h1 "$LINERATE" client enable c1
cp $file "$WORK/other/wg0.conf"
good linerate up "$WORK/other/wg0.conf"
no_client disable c1
said "the words" "$WORK/other/wg0.conf.*--server"
client disable c1 --server "$WORK/other/wg0.conf"
is_out "$(public ann)" c1
good linerate down wg0
is_gone wg0
