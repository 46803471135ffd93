#!/usr/bin/env bash
# timeout: 150
# A proxy where something is missing, forbidden or wrong: it takes the other stack and says why, or it ends and says why.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/proxy.bash"
[[ ${stacks[0]} != theirs ]] || skip "what it says is ours"
need openssl
far
socks=('[Socks5]' 'BindAddress = 127.0.0.1:1080')

# The words of the proxy since it was started.
said_since() { tail -n +"$((before + 1))" "$SCENARIO_LOGS/proxy.log"; }
mark() { touch "$SCENARIO_LOGS/proxy.log" && before=$(wc -l <"$SCENARIO_LOGS/proxy.log"); }
# Under what WRAPPER forbids, `auto` takes the stack in the process, and `kernel` is refused; both say why.
falls_back() { # PATTERN WRAPPER...
  local pattern=$1 plain=("${as_user[@]}")
  shift
  for stack in auto kernel; do
    mark
    as_user=("$@" "${plain[@]}")
    [[ -z ${inside:-} ]] || as_user=("${plain[@]}" "$@")
    if [[ $stack == auto ]]; then
      start auto "${socks[@]}"
      expect "what is fetched" 3000000 "$(get -x socks5h://127.0.0.1:1080 http://host.example/bytes/3000000 | wc -c)"
      as_user=("${plain[@]}")
      said_since | grep -qiE "$pattern" || fail "expected \`$pattern': $(said_since)"
      stop
    else
      proxy_file kernel "${socks[@]}"
      status "${as_user[@]}" "${program[@]}" "$config"
      as_user=("${plain[@]}")
      ((STATUS != 0)) || fail "it did not end"
      grep -qiE "$pattern" "$WORK/said" || fail "expected \`$pattern': $(cat "$WORK/said")"
      grep -q "Stack" "$WORK/said" || fail "it does not speak of Stack: $(cat "$WORK/said")"
    fi
    ! { said_since && cat "$WORK/said"; } 2>/dev/null | grep -q "os error" || fail "the number of an error"
  done
}

say "where nothing is forbidden: the kernel's stack"
mark
start auto "${socks[@]}"
expect "what is fetched" 200 "$(code -x socks5h://127.0.0.1:1080 http://host.example/)"
said_since | grep -q kernel || fail "it does not say whose TCP/IP it has: $(said_since)"
stop

# Limits are set in a user namespace around it, in which this user is root: that of the machine stays as it is.
for limit in user net; do
  say "user.max_${limit}_namespaces is 0"
  inside=yes falls_back "max_${limit}_namespaces" unshare --user --map-root-user sh -c \
    "echo 0 >/proc/sys/user/max_${limit}_namespaces"' && exec "$@"' -
done

say "a filter of system calls, as in containers"
no_namespaces
inside=yes falls_back "filter of system calls|not permitted" "${FILTERED[@]}"

say "a kernel before 5.2, which does not know TUNGETDEVNETNS"
without $ioctl 1 $((0x54e3)) 22 # EINVAL
inside=yes falls_back "Linux 5.2" "${FILTERED[@]}"

say "no TUN driver for users, and none at all"
chmod 600 "$WORK/tun"
inside='' falls_back "/dev/net/tun" env
chmod 666 "$WORK/tun"
inside='' falls_back "/dev/net/tun" unshare --mount sh -c 'mount -t tmpfs none /dev/net && exec "$@"' -

say "root without privileges in its network: ports below 1024, and files of others"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost -keyout "$WORK/home/other.key" -out "$WORK/home/other.crt" 2>/dev/null
plain=("${as_user[@]}")
as_user=(nsenter --net=/run/netns/h1 env "HOME=$WORK/home" XDG_CONFIG_HOME=)
for stack in "${stacks[@]}"; do
  start "$stack" '[http]' 'BindAddress = 127.0.0.1:443' "CertFile = $WORK/home/other.crt" "KeyFile = $WORK/home/other.key"
  expect "what is fetched" 200 "$(code -x https://localhost:443 --proxy-cacert "$WORK/home/other.crt" http://host.example/)"
  stop_daemon proxy
done
as_user=("${plain[@]}")

say "what is wrong with the file, with its line"
refused() { # PATTERN
  status "${as_user[@]}" "${program[@]}" "$config"
  ((STATUS != 0 && STATUS != 124)) || fail "it did not end: $STATUS"
  grep -qE "$1" "$WORK/said" || fail "expected \`$1': $(cat "$WORK/said")"
  expect "processes of the user" "" "$(pgrep -u 1000 -a || true)"
}
proxy_file auto '[Socks5]' 'BindAdress = 127.0.0.1:1080'
refused 'work.conf:[0-9]+:1: unknown setting in \[Socks5\]'
proxy_file auto
refused 'nothing to do'
proxy_file auto '[Socks5]' 'BindAddress = 127.0.0.1:1080' '[http]' 'BindAddress = 127.0.0.1:1080'
refused '127.0.0.1:1080.*in use'
proxy_file auto "${socks[@]}"
sed -i 's/^PrivateKey.*/PrivateKey = $LINERATE_NOT_SET/' "$config"
refused 'environment variable that is not set'
proxy_file auto "${socks[@]}" '[Sock5]'
refused 'did you mean \[Socks5\]'
proxy_file auto "${socks[@]}"
sed -i 's|^Address.*|&\n#! ExcludedIPs = 10.0.0.0/8\n#! Gateway = true|' "$config"
status "${as_user[@]}" "${program[@]}" -n "$config"
grep -q 'work.conf: the proxy ignores ExcludedIPs, Gateway' "$WORK/said" || fail "$(cat "$WORK/said")"
proxy_file auto '[Socks5]' 'BindAddress = 127.0.0.1:1080' 'Username = peter' 'Password = $LINERATE_PASSWORD'
status "${as_user[@]}" LINERATE_PASSWORD=secret "${program[@]}" -n "$config"
expect "the check of a file whose password is the environment's" 0 "$STATUS"

proxy_file kernel 'Congestion = none such' "${socks[@]}"
refused 'Congestion is not the name'
proxy_file kernel 'Congestion = none_such' "${socks[@]}"
refused 'no congestion control none_such here but .*reno'
proxy_file embedded 'Congestion = reno' "${socks[@]}"
refused "Congestion needs the kernel's stack"

say "another congestion control than the host's"
# Others are for those who may change the whole host.
read -ra controls </proc/sys/net/ipv4/tcp_allowed_congestion_control
has_control() { # NAME
  local thread
  # One of its threads is in the network of the tunnel.
  for thread in /proc/"${PID[proxy]}"/task/*; do nsenter --net="$thread/ns/net" ss -Htin dst 10.9.0.2:72; done >"$WORK/sockets"
  grep -qw "$1" "$WORK/sockets"
}
for control in "${controls[@]}"; do
  start kernel "Congestion = $control" "${socks[@]}"
  client stuck :1080 10.9.0.2 72 1 >"$WORK/stuck" < <(sleep 120) &
  wait_for 60 "a connection with $control" has_control "$control"
  kill $! && stop
done

say "no DNS"
mark
DNS='' start auto "${socks[@]}"
said_since | grep -q "the file has no DNS" || fail "it does not say that it has no name server: $(said_since)"
expect "what SOCKS5 says of a name" 4 "$(client reply :1080 host.example 80)"
stop

say "a key that the other end does not know"
mark
proxy_file auto "${socks[@]}"
sed -i "s,^PrivateKey.*,PrivateKey = $(wg genkey)," "$config"
"${as_user[@]}" "${program[@]}" "$config" >>"$SCENARIO_LOGS/proxy.log" 2>&1 &
PID[proxy]=$!
wait_for 20 "port 1080" open_or_over 1080
expect "what SOCKS5 says of a name" 4 "$(client reply :1080 host.example 80)"
said_since | grep -q "no peer of the tunnel has answered" || fail "it does not say that no peer answers: $(said_since)"
stop

say "targets that refuse, reset and stall do not disturb others"
block h2 in tcp dport 82
for stack in "${stacks[@]}"; do
  start "$stack" "${socks[@]}"
  client stuck :1080 10.9.0.2 72 3 >"$WORK/stuck" < <(sleep 60) &
  for _ in 1 2 3 4 5; do
    client reply :1080 10.9.0.2 82 40 >/dev/null &
    expect "a target that refuses" 5 "$(client reply :1080 10.9.0.2 81)"
    client reset :1080 10.9.0.2 >/dev/null
    expect "what is fetched meanwhile" 300000 "$(get -x socks5h://127.0.0.1:1080 http://host.example/bytes/300000 | wc -c)"
  done
  wait_for 20 "writers that are stuck" grep -q 'are stuck' "$WORK/stuck"
  say "$(cat "$WORK/stuck")"
  stop
done
