# Words for scenarios about `linerate proxy`, sourced after lib.sh. The hosts are those of run.bash: h1 with an ordinary
# user, whose proxy it is, and h2 at the other end of the tunnel, with the servers of proxy-far.py on 10.9.0.2 and fd09::2.
#
# Environment:
#   STACKS   whose TCP/IP ("kernel embedded")
#   PROXY    another program that takes wireproxy's file (`wireproxy -c'), instead of ours

source "$REPO/tests/netns/run.bash"
need python3 curl
read -ra stacks <<<"${STACKS:-kernel embedded}"
program=("$tool" proxy)
[[ -z ${PROXY:-} ]] || { stacks=(theirs) && read -ra program <<<"$PROXY"; }
[[ -n ${PROXY:-} || -x $PROGRAMS/linerate-proxy ]] || skip "there is no $PROGRAMS/linerate-proxy (cargo build -p linerate-proxy)"
client=("$(type -P python3)" "$REPO/tests/netns/proxy-client.py")

far() {
  ip netns exec h2 python3 "$REPO/tests/netns/proxy-far.py" "$WORK" 10.9.0.2 fd09::2 >>"$SCENARIO_LOGS/far.log" 2>&1 &
  PID[far]=$!
  wait_for 20 "the servers of h2" test -e "$WORK/far-is-up"
}
asked() { grep -cx "$1" "$WORK/names" || true; }         # NAME : how often the tunnel's name server was asked for it
ended() { grep -cx "$1 $2" "$WORK/connections" || true; } # PORT end|reset|cut : how many connections of the servers ended so
ended_are() { (($(ended "$1" "$2") == $3)); }

DNS=10.9.0.2 # what the file says
MORE=()      # further lines of [Interface]
with=true    # what changes the tunnel's part of the file
# The file of the proxy: the tunnel, the stack, and these lines. The stack `theirs' is that of another program.
proxy_file() { # STACK LINE...
  local stack=$1
  shift
  tunnel_file ${DNS:+"DNS = $DNS"} ${MORE[@]+"${MORE[@]}"}
  $with
  [[ $stack == theirs ]] || printf '%s\n' '[Proxy]' "Stack = $stack" >>"$config"
  printf '%s\n' "$@" >>"$config"
}
# Starts the proxy and waits until it listens on all ports of its BindAddress lines.
start() { # STACK LINE...
  local port
  proxy_file "$@"
  "${as_user[@]}" "${environment[@]}" "${program[@]}" "$config" "${options[@]}" >>"$SCENARIO_LOGS/proxy.log" 2>&1 &
  PID[proxy]=$!
  for port in $(printf '%s\n' "${@:2}" | sed -n 's/^BindAddress.*:\([0-9]*\)$/\1/p'); do
    wait_for 20 "port $port" open_or_over "$port"
    alive proxy || fail "the proxy has ended: $(tail -n 3 "$SCENARIO_LOGS/proxy.log")"
  done
}
open_or_over() { listens h1 "$1" || listens_udp h1 "$1" || gone proxy; }
options=()
environment=(env)
stop() {
  stop_daemon proxy
  wait_for 10 "all of the proxy to end" bash -c '! pgrep -u 1000'
  expect "interfaces of h1" "e1 lo" "$(ip -n h1 -o link | awk -F'[ @:]+' '{ print $2 }' | sort | xargs)"
}
# The memory of all processes of the user, in kB.
memory() { pgrep -u 1000 | while read -r pid; do rss_kb "$pid"; done | awk '{ n += $1 } END { print n + 0 }'; }

get() { on h1 curl -sS --max-time 30 "$@" 2>&1; }                                     # CURL-ARGUMENT... : what came, or why not
code() { on h1 curl -s --max-time 60 -o /dev/null -w '%{http_code}' "$@" || true; }   # CURL-ARGUMENT... : the status
failed() { local s=0 && on h1 curl -s --max-time 60 -o /dev/null "$@" || s=$? && echo $s; } # CURL-ARGUMENT... : curl's exit code
client() { on h1 timeout 300 "${client[@]}" "$@" 2>&1; }
