#!/usr/bin/env bash
# timeout: 150
# Files that wireproxy takes are taken by ours as they are, with the same results: its example, and the cases of its own tests.
# There is no package of it; the scenario runs where `wireproxy` is in PATH.
source "$(dirname "$0")/../netns/lib.sh"
their=$(type -P wireproxy) || skip "there is no wireproxy in PATH"
source "$(dirname "$0")/../netns/proxy.bash"
# Where the user gets to it.
install -m 755 "$their" "$WORK/wireproxy"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=host.example \
  -addext subjectAltName=DNS:host.example -keyout "$WORK/far.key" -out "$WORK/far.crt" 2>/dev/null
cat "$WORK/far.key" "$WORK/far.crt" >"$WORK/far.pem"
far

# What each case comes to, a line for each, for wireproxy and then for ours.
both() { # CASES...
  stacks_of=(theirs "${stacks[@]}")
  for stack in "${stacks_of[@]}"; do
    if [[ $stack == theirs ]]; then program=("$WORK/wireproxy" -c); else program=("$tool" proxy); fi
    "$@" >"$WORK/result-$stack"
    expect "$* with $stack" "$(cat "$WORK/result-theirs")" "$(cat "$WORK/result-$stack")"
  done
}

# .github/workflows/test.yml and test_config.sh
its_workflow() {
  MORE=()
  start "$stack" '[Socks5]' 'BindAddress = 127.0.0.1:64423' '[http]' 'BindAddress = 127.0.0.1:64424' \
    '[http]' 'BindAddress = 127.0.0.1:64425' 'Username = peter' 'Password = hunter123' >&2
  echo "socks5 $(code -x socks5://localhost:64423 http://10.9.0.2/ip)"
  echo "http $(code -x http://localhost:64424 http://zx2c4.example/ip)"
  echo "http with password $(code -x http://peter:hunter123@localhost:64424 http://zx2c4.example/ip)"
  echo "http with password, asked for $(code -x http://peter:hunter123@localhost:64425 http://zx2c4.example/ip)"
  local status=0
  on h1 curl -s --fail --max-time 5 -o /dev/null -x http://peter:wrongpass@localhost:64425 http://zx2c4.example/ip || status=1
  echo "http with wrong password $status"
  stop >&2
}

# The sections of its README, with addresses of the tunnel that is there.
its_example() {
  proxy_file "$stack" '# a comment' '[TCPClientTunnel]' 'BindAddress = 127.0.0.1:25565' 'Target = play.cubecraft.example:80' '' \
    '[TCPServerTunnel]' 'ListenPort = 3422' 'Target = 127.0.0.1:25545' '' '[Socks5]' 'BindAddress = 127.0.0.1:25344' \
    '# Socks5 authentication parameters, specifying username and password enables' '#Username = ...' '#Password = ...' '' \
    '[http]' 'BindAddress = 127.0.0.1:25345' '#CertFile = ...' '[SNI]' 'BindAddress = 0.0.0.0:25443' \
    '[UDPProxyTunnel]' 'BindAddress = 127.0.0.1:25053' 'Target = 10.9.0.2:53' 'InactivityTimeout = 30 # If its set to 0, it will never timeout' \
    '[Resolve]' 'ResolveStrategy = ipv4'
  sed -i 's/^Address = .*/Address = 10.9.0.1\/32 # The subnet should be \/32 and \/128/; s/^AllowedIPs.*/# PersistentKeepalive = 25 (optional)/' "$config"
  sed -i "s/^PrivateKey.*/PrivateKey = \$MY_WIREGUARD_PRIVATE_KEY/" "$config"
  "${as_user[@]}" MY_WIREGUARD_PRIVATE_KEY="$(cat "$WORK/h1.key")" "${program[@]}" "$config" >>"$SCENARIO_LOGS/proxy.log" 2>&1 &
  PID[proxy]=$!
  for port in 25565 25344 25345 25443; do wait_for 20 "port $port" listens h1 $port >&2; done
  wait_for 20 "port 25053" listens_udp h1 25053 >&2
  local server
  ip netns exec h1 python3 -m http.server --bind 127.0.0.1 --directory "$WORK/etc" 25545 >/dev/null 2>&1 &
  server=$!
  wait_for 10 "a server here" listens h1 25545 >&2
  echo "TCPClientTunnel $(code http://127.0.0.1:25565/)"
  echo "TCPServerTunnel $(on h2 curl -s --max-time 20 -o /dev/null -w '%{http_code}' http://10.9.0.1:3422/)"
  echo "Socks5 $(code -x socks5h://127.0.0.1:25344 http://host.example/)"
  echo "http $(code -x http://127.0.0.1:25345 http://host.example/) $(code -px http://127.0.0.1:25345 http://host.example/)"
  echo "SNI $(failed --cacert "$WORK/far.crt" --connect-to host.example:443:127.0.0.1:25443 https://host.example/)"
  echo "UDPProxyTunnel $(on h1 python3 -c '
import socket
ends = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ends.settimeout(20)
ends.connect(("127.0.0.1", 25053))
ends.send(bytes.fromhex("123401000001000000000000") + b"\4host\7example\0\0\1\0\1")
print(ends.recv(512)[-4:].hex())')"
  kill $server && wait $server || true
  stop >&2
}

# config_test.go, and what it would refuse.
its_files() {
  local address
  for address in 10.5.0.2 10.5.0.2/23 100.96.0.190,2606:B300:FFFF:fe8a:2ac6:c7e8:b021:6f5f/128; do
    DNS=198.18.0.1,198.18.0.2 proxy_file "$stack" '[Socks5]' 'BindAddress = 127.0.0.1:1080'
    sed -i "s|^Address = .*|Address = $address|" "$config"
    checked "$address"
  done
  for line in 'Address = 10.5.0.2/33' 'PrivateKey = short' 'MTU = many'; do
    proxy_file "$stack" '[Socks5]' 'BindAddress = 127.0.0.1:1080'
    sed -i "/^${line%% *} = /d; s|^\\[Interface\\]|&\n$line|" "$config"
    checked "$line"
  done
}
checked() { # WHAT
  local verdict=taken
  "${as_user[@]}" "${program[@]}" "$config" -n >>"$SCENARIO_LOGS/checked.log" 2>&1 || verdict=refused
  echo "$1: $verdict"
}

both its_workflow
both its_example
both its_files
note "wireproxy $(go version -m "$their" 2>/dev/null | awk '$1 == "mod" { print $3 }')"
