#!/usr/bin/env bash
# timeout: 150
# Forwards of TCP and UDP in both directions, by sections and by options; halves and resets pass; ssh goes through standard streams.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/proxy.bash"
need ssh ssh-keygen dropbear dropbearkey
far
# What the forwards into the tunnel lead to: the same servers on this side.
ip netns exec h1 bash -c 'mkdir -p "$0" && exec python3 "$1" "$0" 127.0.0.1' "$WORK/near" "$REPO/tests/netns/proxy-far.py" \
  >>"$SCENARIO_LOGS/near.log" 2>&1 &
wait_for 20 "the servers of h1" test -e "$WORK/near/far-is-up"

echoes() { # HOST ADDRESS PORT : a datagram comes back
  on "$1" python3 - "$2" "$3" <<'PYTHON'
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
for length in (1, 64, 1372):
    with socket.socket(family, socket.SOCK_DGRAM) as ends:
        ends.connect((sys.argv[1], int(sys.argv[2])))
        ends.settimeout(4)
        for _ in range(5):
            ends.send(b"x" * length)
            try:
                came = ends.recv(65536)
                break
            except (TimeoutError, ConnectionRefusedError):
                continue
        assert came == b"x" * length, came
PYTHON
}

for stack in "${stacks[@]}"; do
  for how in sections options; do
    [[ $stack != theirs || $how == sections ]] || continue
    say "$stack, by $how"
    near=localhost udp_in=('[UDPServerTunnel]' 'ListenPort = 3007' 'Target = 127.0.0.1:7')
    # wireproxy asks the tunnel's server for localhost, and has no such section.
    [[ $stack != theirs ]] || { near=127.0.0.1 && udp_in=(); }
    case $how in
      sections)
        start "$stack" '[TCPClientTunnel]' 'BindAddress = 127.0.0.1:2080' 'Target = host.example:80' \
          '[TCPClientTunnel]' 'BindAddress = 127.0.0.1:2081' 'Target = 10.9.0.2:81' \
          '[TCPServerTunnel]' 'ListenPort = 3080' "Target = $near:80" \
          '[TCPServerTunnel]' 'ListenPort = 3081' 'Target = 127.0.0.1:81' \
          '[UDPProxyTunnel]' 'BindAddress = 127.0.0.1:2007' 'Target = 10.9.0.2:7' 'InactivityTimeout = 30' "${udp_in[@]}"
        ;;
      options)
        options=(-L 2080:host.example:80 -L 127.0.0.1:2081:10.9.0.2:81 -R 3080:localhost:80 -R 3081:127.0.0.1:81 -L 2007:10.9.0.2:7/udp
          -R 3007:127.0.0.1:7/udp)
        start "$stack"
        wait_for 20 "the forwards" listens h1 2080
        options=()
        ;;
    esac
    expect "out" 3000000 "$(get http://127.0.0.1:2080/bytes/3000000 | wc -c)"
    expect "in, IPv4" 3000000 "$(on h2 curl -sS --max-time 30 http://10.9.0.1:3080/bytes/3000000 | wc -c)"
    expect "in, IPv6" 3000000 "$(on h2 curl -sS --max-time 30 'http://[fd09::1]:3080/bytes/3000000' | wc -c)"
    echoes h1 127.0.0.1 2007
    if [[ $stack != theirs ]]; then
      echoes h2 10.9.0.1 3007
      echoes h2 fd09::1 3007
      say "$stack: a forward to nobody is reset, in both directions"
      # 56 is a reset, and 7 one that comes before curl has seen that it is connected.
      for code in "$(failed http://127.0.0.1:2081/)" "$(on h2 curl -s --max-time 30 http://10.9.0.1:3081/ >/dev/null || echo $?)"; do
        [[ $code == 56 || $code == 7 ]] || fail "a forward to nobody: curl's code $code"
      done
    fi
    stop
  done
  [[ $stack != theirs ]] || continue

  say "$stack: ends of halves, and resets"
  start "$stack" '[Socks5]' 'BindAddress = 127.0.0.1:1080'
  : >"$WORK/connections"
  client halves :1080 10.9.0.2
  wait_for 10 "what came after the target's own end" grep -qx '73 after its own end: 1000 bytes' "$WORK/connections"
  client reset :1080 10.9.0.2
  wait_for 10 "the client's reset at the target" ended_are 7 reset 1
  stop
done

say "ssh by standard streams"
ssh-keygen -q -t ed25519 -N '' -f "$WORK/home/id"
dropbearkey -t ed25519 -f "$WORK/host_key" | grep ^ssh-ed25519 | sed 's/^/host.example /' >"$WORK/home/known"
mkdir -m 700 "$WORK/root" "$WORK/root/.ssh" && cp "$WORK/home/id.pub" "$WORK/root/.ssh/authorized_keys"
sed "s|^\(root:.*\):/root:|\1:$WORK/root:|" /etc/passwd >"$WORK/passwd" && own_file /etc/passwd <"$WORK/passwd"
ip netns exec h2 dropbear -F -E -s -r "$WORK/host_key" -P "$WORK/dropbear.pid" -p 10.9.0.2:22 -p "[fd09::2]:22" 2>>"$SCENARIO_LOGS/ssh.log" &
wait_for 10 "the server" listens h2 22
for stack in "${stacks[@]}"; do
  for how in section option; do
    [[ $stack != theirs || $how == section ]] || continue
    if [[ $how == section ]]; then
      proxy_file "$stack" '[STDIOTunnel]' 'Target = host.example:22'
      command="${program[*]} $config"
    else
      proxy_file "$stack"
      command="${program[*]} $config -W \"[%h]:%p\""
    fi
    chown -R 1000:1000 "$WORK/home"
    head -c 3000000 /dev/urandom >"$WORK/file"
    expect "$stack, by $how: what went to the other end and back" "$(sha256sum <"$WORK/file")" \
      "$("${as_user[@]}" timeout 60 ssh -F none -i "$WORK/home/id" -o UserKnownHostsFile="$WORK/home/known" -o StrictHostKeyChecking=yes \
        -o LogLevel=ERROR -o ProxyCommand="$command" root@host.example cat <"$WORK/file" | sha256sum)"
    wait_for 10 "the proxy to end with its connection" bash -c '! pgrep -u 1000'
  done
done
