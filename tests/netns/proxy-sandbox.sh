#!/usr/bin/env bash
# timeout: 120
# What somebody has who takes over a running linerate-proxy: each of its threads tries to open, execute, trace and more, with
# both stacks. Other users' tools cannot look into it, and no call that it needs is refused.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/run.bash"
need curl python3
[[ $(uname -m) == x86_64 ]] || skip "intruder.py is for x86-64"
[[ -x $PROGRAMS/linerate-proxy ]] || skip "there is no $PROGRAMS/linerate-proxy (cargo build -p linerate-proxy)"

mkdir "$WORK/site"
head -c 1000000 /dev/urandom >"$WORK/site/file"
ip netns exec h2 python3 -m http.server --bind 10.9.0.2 --directory "$WORK/site" 80 >"$SCENARIO_LOGS/site.log" 2>&1 &
answer_names
ip netns exec h1 python3 -m http.server --bind 127.0.0.1 --directory "$WORK/site" 8080 >"$SCENARIO_LOGS/local.log" 2>&1 &
wait_for 20 "a server of this host" on h1 curl -s -o /dev/null http://127.0.0.1:8080/

proxy() { # STACK FILTER
  {
    cat "$config" && echo
    printf '#! %s\n' '[Proxy]' "Stack = $1" "CheckAlive = 10.9.0.2" "CheckAliveInterval = 1"
  } >"$WORK/home/proxy.conf"
  chown 1000:1000 "$WORK/home/proxy.conf"
  chmod 600 "$WORK/home/proxy.conf"
  LINERATE_SECCOMP=$2 "${as_user[@]}" /mnt/linerate-proxy "$WORK/home/proxy.conf" -D 1080 --http 8081 -L 8082:intranet:80 \
    -R 80:localhost:8080 -i 9080 >"$SCENARIO_LOGS/proxy-$1-$2.log" 2>&1 &
  PID[proxy]=$!
  log=$SCENARIO_LOGS/proxy-$1-$2.log
  wait_for 20 "the proxy" fetch --proxy socks5h://127.0.0.1:1080 http://intranet/file
}
fetch() { on h1 curl -s --max-time 20 -o "$WORK/fetched" "$@" && cmp -s "$WORK/site/file" "$WORK/fetched"; }
info() { on h1 curl -s -H 'Accept: text/plain;version=0.0.4' "http://127.0.0.1:9080/$1"; }
end() {
  kill "${PID[proxy]}"
  wait "${PID[proxy]}" || fail "the proxy ended with $?"
}
intruder() { python3 "$(dirname "$0")/intruder.py" "${PID[proxy]}" "$@"; }
threads() { find "/proc/${PID[proxy]}/task" -mindepth 1 -maxdepth 1 | wc -l; }
fields() { sed -n "s/^$1:[[:space:]]*//p" /proc/"${PID[proxy]}"/task/*/status | sort -u | paste -sd ' '; }

everything=(open open-tun create execute fork ptrace read-memory signal unix-socket netlink-socket raw-socket listen
  enter-network new-user-namespace mount executable-memory capset dumpable io-uring bpf)
for stack in kernel embedded; do
  say "$stack: what it needs is not refused"
  proxy $stack kill
  ! grep 'does not offer all protection' "$log" || skip "this kernel or container does not offer all protection"
  fetch --proxy http://127.0.0.1:8081 http://intranet/file || fail "the HTTP proxy"
  fetch http://127.0.0.1:8082/file || fail "the forward into the tunnel"
  on h2 curl -s --max-time 20 -o "$WORK/fetched" http://10.9.0.1/file && cmp "$WORK/site/file" "$WORK/fetched" ||
    fail "the forward out of the tunnel"
  on h1 python3 - <<'END' || fail "datagrams of SOCKS5"
import socket, struct
tcp = socket.create_connection(("127.0.0.1", 1080), 20)
tcp.sendall(b"\5\1\0" + b"\5\3\0\1" + bytes(6))
reply = b""
while len(reply) < 12:
    reply += tcp.recv(12)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(20)
question = b"\x12\x34\1\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1"
udp.sendto(b"\0\0\0\1\x0a\x09\0\2\0\x35" + question, ("127.0.0.1", struct.unpack(">H", reply[10:12])[0]))
answer = udp.recv(1500)
assert answer[:12] == b"\0\0\0\1\x0a\x09\0\2\0\x35\x12\x34", answer
END
  is_ready() { [[ $(on h1 curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:9080/readyz) == 200 ]]; }
  wait_for 20 "an answer to its echo requests" is_ready
  end

  say "$stack: what it has"
  proxy $stack refuse
  expect "user, in each thread" "1000	1000	1000	1000" "$(fields Uid)"
  expect "capabilities" "0000000000000000 0000000000000000 0000000000000000" "$(fields CapPrm) $(fields CapEff) $(fields CapAmb)"
  expect "new privileges and filter" "1 2" "$(fields NoNewPrivs) $(fields Seccomp)"
  expect "core files" "0 0" "$(awk '/^Max core/ { print $5, $6 }' "/proc/${PID[proxy]}/limits")"
  expect "owner of its memory" root "$(stat -c %U "/proc/${PID[proxy]}/mem")"
  expect_failure "its memory, read by the same user" setpriv --reuid 1000 --regid 1000 --clear-groups \
    head -c 1 "/proc/${PID[proxy]}/mem"
  expect "refused calls" "linerate_proxy_system_calls_refused_total 0" "$(info metrics | grep '^linerate_proxy_system_calls_refused_total')"

  say "$stack: what an intruder cannot do"
  note "$(threads) threads, ${#everything[@]} attempts in each"
  (($(threads) > 2)) || fail "it has $(threads) threads"
  intruder "${everything[@]}" >"$WORK/tried" || fail "intruder.py: $(tail -n 3 "$WORK/tried")"
  expect "attempts" $(($(threads) * ${#everything[@]})) "$(wc -l <"$WORK/tried")"
  expect "attempts that were not refused" "" "$(grep -v ' refused$' "$WORK/tried" || true)"
  fetch --proxy socks5h://127.0.0.1:1080 http://intranet/file || fail "it does not work after that"
  end

  say "$stack: and not without the filter"
  proxy $stack off
  intruder open create execute signal >"$WORK/tried" || fail "intruder.py: $(tail -n 3 "$WORK/tried")"
  expect "attempts" $(($(threads) * 4)) "$(wc -l <"$WORK/tried")"
  expect "attempts that were not refused" "" "$(grep -vE ' (EACCES|EPERM)$' "$WORK/tried" || true)"
  end

  say "$stack: with LINERATE_SECCOMP=kill the attempt is its end"
  proxy $stack kill
  expect "what came of it" "open killed" "$(intruder open)"
  ! wait "${PID[proxy]}" 2>/dev/null || fail "it goes on"
done
