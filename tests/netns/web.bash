# Words for scenarios about the page, sourced after lib.sh and tunnel-files.bash: linerate-web on h1 as nobody, and its
# helper as root.

LINERATE_WEB=${LINERATE_WEB:-$PROGRAMS/linerate-web}
HELPER=$WORK/helper/web.sock
PAGE=http://127.0.0.1:7789
need python3 curl

[[ -x $LINERATE_WEB ]] || skip "there is no $LINERATE_WEB (cargo build -p linerate-web)"
as_nobody=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
"${as_nobody[@]}" true 2>/dev/null || skip "no right to become another user"

has_browser() {
  type -P chromium >/dev/null || type -P chromium-browser >/dev/null || type -P google-chrome >/dev/null ||
    skip "there is no chromium"
}
helper() { # [OPTION]...
  [[ -d $WORK/helper ]] || mkdir -m 711 "$WORK/helper"
  chmod 711 "$WORK"
  ip netns exec h1 "$LINERATE" web-helper --socket "$HELPER" --user nobody "$@" >>"$SCENARIO_LOGS/helper.log" 2>&1 &
  PID[helper]=$!
  wait_for 20 "the helper" python3 -c "import socket; socket.socket(socket.AF_UNIX).connect('$HELPER')"
}
serve() { # [OPTION]... : the page, which is not waited for
  install -d -o nobody -g nogroup -m 700 "$WORK/state"
  chmod 711 "$WORK"
  ip netns exec h1 "${as_nobody[@]}" "$LINERATE_WEB" serve --state "$WORK/state" --helper "$HELPER" "$@" \
    >>"$SCENARIO_LOGS/web.log" 2>&1 &
  PID[web]=$!
}
page() { # [OPTION-OF-THE-HELPER]...
  helper "$@"
  serve
  wait_for 20 "the page" on h1 curl -s -o /dev/null "$PAGE/login"
}
token() { "$LINERATE_WEB" token --state "$WORK/state" "$@" 2>/dev/null; } # [OPTION]...
told() { on h1 curl -s -o /dev/null -w '%{http_code}' "$@"; } # the status
# A session in the cookie jar $WORK/jar, and the secret of its forms in $form; PEER is one that has a page.
log_in() { # [OPTION-OF-TOKEN]...
  expect "logging in" 303 "$(told -c "$WORK/jar" -d "token=$(token "$@")" "$PAGE/login")"
  form=$(on h1 curl -s -b "$WORK/jar" "$PAGE/" | grep -oP 'name="form" value="\K[0-9a-f]+' | head -n 1)
  [[ -n $form ]] || fail "the page has no form"
}
# What the helper says to a line on standard input that nobody sends it.
ask() {
  python3 -c "
import socket, sys
helper = socket.socket(socket.AF_UNIX)
helper.settimeout(60)
helper.connect('$HELPER')
try:
    helper.sendall(sys.stdin.buffer.read())
except (BrokenPipeError, ConnectionResetError):
    pass # it has read enough
try:
    while part := helper.recv(65536):
        sys.stdout.write(part.decode())
except ConnectionResetError:
    pass"
}
