#!/usr/bin/env bash
# timeout: 120
# An HTTP proxy out of a tunnel: CONNECT, requests of all methods, passwords, TLS to the proxy, what fails and why.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/proxy.bash"
need openssl
# The far end's certificate is that of a host there, the proxy's that of localhost.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=host.example \
  -addext subjectAltName=DNS:host.example,IP:10.9.0.2 -keyout "$WORK/far.key" -out "$WORK/far.crt" 2>/dev/null
cat "$WORK/far.key" "$WORK/far.crt" >"$WORK/far.pem"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$WORK/home/proxy.key" -out "$WORK/home/proxy.crt" 2>/dev/null
far
first() { head -n 1 | tr -d '\r'; }

for stack in "${stacks[@]}"; do
  say "$stack: CONNECT, and absolute URLs"
  start "$stack" '[http]' 'BindAddress = 127.0.0.1:8080' '[http]' 'BindAddress = 127.0.0.1:8081' 'Username = peter' \
    'Password = hunter123' '[http]' 'BindAddress = 127.0.0.1:8082' "CertFile = $WORK/home/proxy.crt" "KeyFile = $WORK/home/proxy.key"
  proxy=http://127.0.0.1:8080
  expect "TLS through CONNECT" 300000 "$(get -x $proxy --cacert "$WORK/far.crt" https://host.example/bytes/300000 | wc -c)"
  expect "CONNECT to an address" "GET /a HTTP/1.1" "$(get -px $proxy 'http://[fd09::2]/a' | first)"
  expect "GET" "GET /a?b=c HTTP/1.1" "$(get -x $proxy 'http://host.example/a?b=c' | first)"
  expect "GET from another port" 3000000 "$(get -x $proxy http://10.9.0.2:8080/bytes/3000000 | wc -c)"

  say "$stack: passwords"
  expect "the right one" 200 "$(code -x http://peter:hunter123@127.0.0.1:8081 http://10.9.0.2/)"
  expect "the right one, CONNECT" 200 "$(code -x http://peter:hunter123@127.0.0.1:8081 --cacert "$WORK/far.crt" https://10.9.0.2/)"
  expect "none" 407 "$(code --max-time 5 -x http://127.0.0.1:8081 http://10.9.0.2/)"
  expect "none, CONNECT: curl's code" 56 "$(failed -x http://127.0.0.1:8081 --cacert "$WORK/far.crt" https://10.9.0.2/)"
  # wireproxy says 401 and does not end the connection.
  wrong=$(code --max-time 5 -x http://peter:wrong@127.0.0.1:8081 http://10.9.0.2/)
  [[ $wrong == 40[17] ]] || fail "a wrong password: status $wrong"

  say "$stack: TLS to the proxy"
  expect "status" 200 "$(code -x https://localhost:8082 --proxy-cacert "$WORK/home/proxy.crt" http://10.9.0.2/)"
  expect "TLS in TLS" 200 \
    "$(code -x https://localhost:8082 --proxy-cacert "$WORK/home/proxy.crt" --cacert "$WORK/far.crt" https://host.example/)"
  [[ $stack != theirs ]] || { stop && continue; }
  # Many clients end the connection and not TLS before it: what they have sent arrives.
  before=$(ended 9 end)
  on h1 python3 - "$WORK/home/proxy.crt" <<'END' || fail "a client that ends without a word of TLS"
import socket, ssl, sys
client = ssl.create_default_context(cafile=sys.argv[1]).wrap_socket(socket.create_connection(("127.0.0.1", 8082)),
                                                                    server_hostname="localhost")
client.sendall(b"CONNECT 10.9.0.2:9 HTTP/1.1\r\nHost: 10.9.0.2:9\r\n\r\n")
assert b" 200 " in client.recv(1000)
client.sendall(bytes(1000000))
client.shutdown(socket.SHUT_WR)
client.close()
END
  wait_for 10 "its end, which is no reset" ended_are 9 end $((before + 1))

  say "$stack: all methods, and headers for one hop"
  for method in POST PUT DELETE PATCH OPTIONS PROPFIND; do
    get -x $proxy -X $method -d a=b -H 'Proxy-Connection: keep-alive' -H 'Connection: X-Hop' -H 'X-Hop: 1' -H 'X-Kept: 2' \
      http://host.example/m >"$WORK/said"
    expect "$method" "$method /m HTTP/1.1" "$(first <"$WORK/said")"
    expect "body of $method" "a=b" "$(tail -c 3 "$WORK/said")"
    ! grep -qiE '^(proxy-|x-hop)' "$WORK/said" || fail "a header for one hop was passed on: $(cat "$WORK/said")"
    grep -q '^X-Kept: 2' "$WORK/said" || fail "a header was lost: $(cat "$WORK/said")"
  done
  expect "HEAD" 200 "$(code -x $proxy -I http://host.example/m)"
  head -c 300000 /dev/urandom >"$WORK/file"
  expect "a body in chunks" "$(sha256sum <"$WORK/file")" \
    "$(get -x $proxy -X POST -H 'Transfer-Encoding: chunked' -H Expect: --data-binary @"$WORK/file" http://10.9.0.2/ | tail -c 300000 | sha256sum)"

  say "$stack: WebSocket without CONNECT"
  on h1 python3 - <<'END' || fail "a WebSocket through the proxy"
import base64, hashlib, os, socket
proxy = socket.create_connection(("127.0.0.1", 8080), timeout=20)
def read(count):
    data = b""
    while len(data) < count and (more := proxy.recv(count - len(data))):
        data += more
    return data
def head():
    text = b""
    while not text.endswith(b"\r\n\r\n"):
        text += read(1)
    return text.decode()
# A request before it on the same connection, and the first frame in one piece with the request.
proxy.sendall(b"GET http://host.example/bytes/10 HTTP/1.1\r\nHost: host.example\r\n\r\n")
assert " 200 " in head() and read(10) == b"x" * 10
key, frame = base64.b64encode(os.urandom(16)).decode(), b"\x82\x84abcd" + b"1234"
proxy.sendall(f"GET http://host.example/chat HTTP/1.1\r\nHost: host.example\r\nConnection: keep-alive, Upgrade\r\n"
              f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode() + frame)
answer = head()
accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
assert " 101 " in answer and accept in answer and "upgrade: websocket" in answer.lower(), answer
assert read(7) == b"\x81\x05hello" and read(len(frame)) == frame
data = os.urandom(1000000)
import threading
threading.Thread(target=lambda: (proxy.sendall(data), proxy.shutdown(socket.SHUT_WR))).start()
assert read(len(data)) == data and proxy.recv(1) == b"", "and its end"
END
  expect "another protocol that was not asked for" 502 "$(code -x $proxy http://host.example/unasked)"

  say "$stack: what fails, with a reason"
  fails() { # STATUS WORDS URL
    expect "$3" "$1" "$(code -x $proxy "$3")"
    get -x $proxy "$3" | grep -q "$2" || fail "expected \`$2': $(get -x $proxy "$3")"
  }
  fails 502 refused http://10.9.0.2:81/
  fails 502 none.example http://none.example/
  fails 403 "not an address" http://127.0.0.1:80/
  stop
done
