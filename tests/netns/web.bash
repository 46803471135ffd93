# Words for scenarios about the page, sourced after lib.sh and tunnel-files.bash: linerate-web on h1 as nobody, and its
# helper as root.

LINERATE_WEB=${LINERATE_WEB:-$PROGRAMS/linerate-web}
HELPER=$WORK/helper/web.sock
PAGE=http://127.0.0.1:7789

type -P chromium >/dev/null || type -P chromium-browser >/dev/null || type -P google-chrome >/dev/null || skip "there is no chromium"
[[ -x $LINERATE_WEB ]] || skip "there is no $LINERATE_WEB (cargo build -p linerate-web)"
setpriv --reuid=nobody --regid=nogroup --clear-groups true 2>/dev/null || skip "no right to become another user"

page() { # [OPTION-OF-THE-HELPER]...
  chmod 711 "$WORK"
  install -d -o nobody -g nogroup -m 700 "$WORK/state"
  mkdir -m 711 "$WORK/helper"
  ip netns exec h1 "$LINERATE" web-helper --socket "$HELPER" --user nobody "$@" >>"$SCENARIO_LOGS/helper.log" 2>&1 &
  PID[helper]=$!
  wait_for 5 "the helper" test -S "$HELPER"
  ip netns exec h1 setpriv --reuid=nobody --regid=nogroup --clear-groups "$LINERATE_WEB" serve --state "$WORK/state" --helper "$HELPER" \
    >>"$SCENARIO_LOGS/web.log" 2>&1 &
  PID[web]=$!
  wait_for 5 "the page" on h1 curl -s -o /dev/null "$PAGE/login"
}
token() { "$LINERATE_WEB" token --state "$WORK/state" "$@" 2>/dev/null; } # [OPTION]...
