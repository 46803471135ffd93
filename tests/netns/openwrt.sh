#!/usr/bin/env bash
# timeout: 180
# OpenWrt's netifd and the protocol `linerate`: its handler sets up, renews, fails and takes down a tunnel on h1.
#
# netifd is played by `ubus` and `netifd` below, as its proto-ext.c has it: it starts and ends the daemon, ends a setup
# whose daemon ends by itself, and sets the addresses and routes that it is told of. The words of its shell library are
# those of tests/openwrt, or the real ones.
#
# Environment: OPENWRT (nothing), a folder with netifd's netifd-proto.sh and utils.sh, libubox's jshn.sh and jshn, and
# OpenWrt's functions.sh: the real ones.
source "$(dirname "$0")/lib.sh"
need busybox jq
program=$PROGRAMS/linerate-router
[[ -x $program ]] || program=$(dirname "$EXAMPLES")/linerate-router # it is in no ordinary release build
[[ -x $program ]] || skip "there is no $program"
busybox ash -c 'exit' 2>/dev/null || skip "busybox has no ash"

router=$WORK/router # what the package installs, and what OpenWrt has
mkdir -p "$router"/{bin,proto,uci}
ln -s "$program" "$router/bin/linerated"
# What others on the router may see of a program that the handler starts, and of the handler: command lines, and what is
# in the environment.
cat >"$router/record" <<'RECORD'
for file in $$/cmdline $$/environ $PPID/cmdline $PPID/environ; do tr '\0' '\n' <"/proc/$file"; done >>"$NETIFD/seen"
RECORD
cat >"$router/bin/linerate" <<LINERATE
#!/usr/bin/env bash
source "\$NETIFD/record"
exec -a linerate "$program" "\$@"
LINERATE
handler=$REPO/packaging/openwrt/linerate.sh
if [[ -n ${OPENWRT:-} ]]; then
  cp "$OPENWRT"/{netifd-proto,utils,jshn}.sh "$router"
  cp "$OPENWRT/jshn" "$router/bin"
  { cat "$OPENWRT/functions.sh" && echo 'uci_load() { . "$UCI/$1"; }'; } >"$router/functions.sh"
  # Where the library looks for itself.
  sed -i "s,/usr/share/libubox/,$router/," "$router/netifd-proto.sh"
  export NETIFD_MAIN_DIR=$router
else
  cp "$REPO"/tests/openwrt/{functions,netifd-proto}.sh "$router"
fi
sed "s,/lib/functions.sh,$router/functions.sh," "$handler" >"$router/proto/linerate.sh"

cat >"$router/bin/ubus" <<'UBUS'
#!/usr/bin/env bash
# netifd, as a handler sees it: `ubus [-S] call OBJECT METHOD JSON`.
source "$NETIFD/record"
json=${*: -1} method=${*: -2:1}
[[ $method == notify_proto ]] || json=$(jq -c --arg method "$method" '{($method): .}' <<<"$json")
echo "$json" >>"$NETIFD/told"
of() { jq -r "$1" <<<"$json"; }
# No interface has a route for IPv6.
[[ $(of .add_host_route.v6) != true ]] || { echo "Command failed: Not found" >&2 && exit 4; }
ends() { kill "$(cat "$NETIFD/$1" 2>/dev/null)" 2>/dev/null; } # handler|task
starts() {
  local words variables status=0
  mapfile -t words < <(of '.command[]')
  mapfile -t variables < <(of '.env // [] | .[]')
  words[0]=$NETIFD/bin/${words[0]##*/}
  env "${variables[@]}" "${words[@]}" >>"$NETIFD/log" 2>&1 </dev/null &
  echo $! >"$NETIFD/task" && echo
  exec >/dev/null
  wait $! || status=$?
  [[ ! -e $NETIFD/stops ]] || return
  # A signal has no status.
  echo $((status < 128 ? status : 0)) >"$NETIFD/error"
  ends handler
}
case $(of .action) in
  0)
    dev=$(of .ifname)
    ip link set "$dev" up
    of '(.ipaddr, .ip6addr) // [] | .[] | .ipaddr + "/" + .mask' | while read -r a; do ip addr replace "$a" dev "$dev"; done
    of '(.routes, .routes6) // [] | .[] | .target + "/" + .netmask' | while read -r r; do ip route replace "$r" dev "$dev"; done
    ;;
  1) read -r _ < <(starts) ;;
  2) ends task ;;
  7) touch "$NETIFD/stops" && ends task; ends handler ;;
esac
exit 0
UBUS
cat >"$router/bin/uci" <<'UCI'
#!/usr/bin/env bash
# As much of uci as the handler needs, by the path of the file: `get OPTION`, and `set OPTION=VALUE` in a batch.
source "$NETIFD/record"
file=$UCI/network quote="'"
of() { # OPTION : the section's lines, and the option's name
  [[ $1 == /etc/config/network.*.* ]] || exit 1
  name=${1##*.} section=${1#/etc/config/network.} section=${section%.*}
  range="/^config .* '$section'/,/^\$/"
}
[[ $1 != -q ]] || shift
case $1 in
  get) of "$2" && sed -n "$range{s,^option $name $quote\(.*\)$quote\$,\1,p}" "$file" ;;
  batch)
    while read -r command what; do
      [[ $command == set ]] && of "${what%%=*}" && sed -i "$range{s,^option $name .*,option $name $quote${what#*=}$quote,}" "$file"
    done
    ;;
  *) exit 1 ;;
esac
UCI
chmod +x "$router/bin"/{linerate,ubus,uci}
ln -s "$(type -P busybox)" "$router/bin/ash"

netifd() { # VERB : the handler, as netifd runs it; its words are in $WORK/said, its status in $STATUS
  local error=()
  STATUS=0
  case $1 in
    setup) rm -f "$router"/{stops,error,task} ;;
    teardown) touch "$router/stops" && [[ ! -e $router/error ]] || error=(ERROR="$(cat "$router/error")") ;;
  esac
  # Its number is there before it can start a daemon that ends.
  (echo $BASHPID >"$router/handler" && cd "$router/proto" && exec env "PATH=$router/bin:$PATH" UCI="$router/uci" \
    NETIFD="$router" "${error[@]}" ip netns exec h1 ash ./linerate.sh linerate "$1" wg1 "$(data)") >"$WORK/said" 2>&1 </dev/null &
  wait $! || STATUS=$?
  rm "$router/handler"
  cp "$router/told" "$SCENARIO_LOGS/told.log"; cat "$WORK/said" >>"$SCENARIO_LOGS/said.log"
}
told() { jq -c "$1" "$router/told" | tail -n 1; } # FILTER
forget_told() { : >"$router/told"; }
task_gone() { ! kill -0 "$(cat "$router/task")" 2>/dev/null; }
leaves_nothing() {
  [[ ! -e $router/task ]] || wait_for 10 "the daemon to end" task_gone
  expect "interfaces" "$BEFORE" "$(ip -n h1 -br link | awk '{ print $1 }' | xargs)"
  expect "routes" "$ROUTES" "$(ip -n h1 route show table all | sort | sha256sum)"
  expect "sockets" "wg2.sock" "$(ls /run/wireguard)"
}

is_nowhere() { # KEY WHAT : but in UCI's file
  expect "$2 in command lines and the environment" "" "$(grep -nF "$1" "$router/seen" || true)"
  expect "$2 in files" "" "$(grep -rlF "$1" /run --exclude-dir={uci,netns} --exclude={'*.key','*.psk'} || true)"
  expect "$2 in new files" "" \
    "$(find /tmp -maxdepth 2 -newer "$WORK/begun" -type f -size -64k -exec grep -lF "$1" {} + 2>/dev/null || true)"
}

two_hosts
key h1 h2 h3
preshared shared
touch "$WORK/begun"
daemon h2 wg2
on h2 wg set wg2 listen-port 50002 private-key "$WORK/h2.key" \
  peer "$(public h1)" preshared-key "$WORK/shared.psk" allowed-ips 10.9.0.1/32,fd09::1/128
wg_address h2 wg2 10.9.0.2/24 fd09::2/64
ip -n h2 address add 10.77.0.1/32 dev lo
BEFORE=$(ip -n h1 -br link | awk '{ print $1 }' | xargs)
ROUTES=$(ip -n h1 route show table all | sort | sha256sum)
forget_told

say "what netifd asks of a handler when it starts"
STATUS=0
dump=$(cd "$router/proto" && PATH=$router/bin:$PATH UCI=$router/uci ash ./linerate.sh '' dump) || STATUS=$?
expect "the protocol" '["linerate",true,false,true,true,true]' \
  "$(jq -c '[.name, ."no-device", ."no-proto-task", .available, ."renew-handler", .lasterror]' <<<"$dump")"
expect "its options" "addresses fwmark ip6prefix listen_port mtu nohostroute tunlink" \
  "$(jq -r '[.config[][0]] | sort | join(" ")' <<<"$dump")"

network() { # LINE... : /etc/config/network, with more lines for the peer
  {
    printf '%s\n' "config interface 'wg1'" "option proto 'linerate'" "option private_key '$KEY'" ${PORT:+"option listen_port '$PORT'"} \
      "option mtu '1400'" "option fwmark '0x20'" "list addresses '10.9.0.1/24'" "list addresses 'fd09::1'" "list ip6prefix 'fd77::/64'" \
      ${TUNLINK:+"option tunlink '$TUNLINK'"} "" \
      "config linerate_wg1" "option description 'the other one'" "option public_key '$(public h2)'" "option endpoint_host '192.0.2.2'" \
      "option endpoint_port '50002'" "option preshared_key '$(cat "$WORK/shared.psk")'" "option route_allowed_ips '1'" \
      "list allowed_ips '10.9.0.2/32'" "list allowed_ips 'fd09::2/128'" "list allowed_ips '10.77.0.0/24'" "$@" "" \
      "config linerate_wg1" "option public_key '$(public h3)'" "option disabled '1'"
  } >"$router/uci/network"
}
# What netifd gives of the interface's section: of its options those that the handler has declared.
data() {
  awk '/^$/ { exit } { value = $3; gsub("\047", "", value); print $1, $2, value }' "$router/uci/network" |
    jq -cRn --argjson declared "$(jq '.config | map(.[0]) + ["proto"]' <<<"$dump")" '
      reduce (inputs / " ") as $line ({}; if $line[0] == "list" then .[$line[1]] += [$line[2]] else .[$line[1]] = $line[2] end) |
      with_entries(select(.key as $key | any($declared[]; . == $key)))'
}
KEY=$(cat "$WORK/h1.key") PORT=50001 TUNLINK=
network
expect "what netifd gives" '["linerate","50001",null]' "$(data | jq -c '[.proto, .listen_port, .private_key]')"

say "setup"
netifd setup
expect "setup" 0 "$STATUS"
expect "the daemon's command" '["/usr/bin/linerated","-f","wg1"]' "$(told 'select(.action == 1).command')"
expect "what the handler tells of the link" '["wg1",true]' "$(told 'select(.action == 0) | [.ifname, ."link-up"]')"
expect "addresses" '[["10.9.0.1","24"]] [["fd09::1","128"]]' \
  "$(told 'select(.action == 0).ipaddr | map([.ipaddr, .mask])') $(told 'select(.action == 0).ip6addr | map([.ipaddr, .mask])')"
expect "routes" '["10.9.0.2/32","10.77.0.0/24"] ["fd09::2/128"]' \
  "$(told 'select(.action == 0).routes | map(.target + "/" + .netmask)') $(told 'select(.action == 0).routes6 | map(.target + "/" + .netmask)')"
expect "prefixes" '["fd77::/64"]' "$(told 'select(.action == 0).ip6prefix')"
expect "the endpoint's route is netifd's" '"192.0.2.2"' "$(told 'select(.action == 6).host')"
expect "failures" "" "$(told 'select(.action == 7 or .action == 3)')"
expect "MTU" 1400 "$(on h1 cat /sys/class/net/wg1/mtu)"
expect "port and mark" "50001 0x20" "$(on h1 wg show wg1 listen-port) $(on h1 wg show wg1 fwmark)"
expect "peers" "$(public h2)" "$(on h1 wg show wg1 peers)"
expect "calls of netifd's own methods" "" "$(told 'select(.add_host_route)')"
wait_for 5 "wg1 to open its port" listens_udp h1 50001
wait_for 5 "wg2 to open its port" listens_udp h2 50002
pings h1 10.9.0.2
pings h1 10.77.0.1
pings h2 fd09::1
note "memory of the daemon: $(rss_kb "$(cat "$router/task")") kB"
for recorded in '^syncconf$' '^{.*"listen_port"' '^UCI='; do grep -q "$recorded" "$router/seen" || fail "$recorded was not recorded"; done
is_nowhere "$KEY" "the private key"
is_nowhere "$(cat "$WORK/shared.psk")" "the preshared key"

say "renew: peers as they are now, and the session stays"
before=$(handshake_time h1 wg1)
task=$(cat "$router/task")
network "list allowed_ips '10.78.0.0/24'" "option persistent_keepalive '25'"
sed -i "s/^option disabled '1'/option disabled '0'/" "$router/uci/network"
forget_told
netifd renew
expect "renew" 0 "$STATUS"
expect "peers" "$(printf '%s\n' "$(public h2)" "$(public h3)" | sort | xargs)" "$(on h1 wg show wg1 peers | sort | xargs)"
expect "routes" '["10.9.0.2/32","10.77.0.0/24","10.78.0.0/24"]' \
  "$(told 'select(.action == 0).routes | map(.target + "/" + .netmask)')"
expect "a daemon started" "" "$(told 'select(.action == 1)')"
expect "a dependency" "" "$(told 'select(.action == 6)')"
expect "the endpoint's route is past the tunnel" '{"target":"192.0.2.2","v6":false,"interface":"wg1","exclude":true}' \
  "$(told 'select(.add_host_route).add_host_route')"
is_nowhere "$KEY" "the private key"
expect "the daemon" "$task" "$(cat "$router/task")"
expect "the session" "$before" "$(handshake_time h1 wg1 h2)"
pings h1 10.9.0.2

say "renew: a link of its own, an endpoint of IPv6, and one of a peer that came from elsewhere"
TUNLINK=wan
network
sed -i "s/192.0.2.2/2001:db8::2/; s/^option disabled '1'/option disabled '0'/" "$router/uci/network"
forget_told
on h1 wg set wg1 peer "$(public h3)" endpoint 192.0.2.3:50003
netifd renew
expect "renew" 0 "$STATUS"
expect "routes of endpoints" '{"target":"2001:db8::2","v6":true,"interface":"wan"}' \
  "$(jq -c 'select(.add_host_route).add_host_route' "$router/told")"
grep -qF "no route to the endpoint 2001:db8::2" "$WORK/said" || fail "the log does not say that there is no route: $(cat "$WORK/said")"
TUNLINK=
network
netifd renew
expect "the endpoint" 192.0.2.2:50002 "$(endpoint h1 wg1)"
pings h1 10.9.0.2

say "a renew that fails leaves the tunnel"
network "list allowed_ips '10.9.0.2/99'"
forget_told
netifd renew
expect "renew" 1 "$STATUS"
expect "what netifd shows" '["INVALID_CONFIGURATION"]' "$(told 'select(.action == 3).error')"
expect "failures of the setup" "" "$(told 'select(.action == 7)')"
pings h1 10.9.0.2

say "a key that is mistyped is not in the log"
KEY=${KEY%?}
network
netifd renew
expect "renew" 1 "$STATUS"
grep -q "Key is not the correct length or format" "$WORK/said" || fail "the log does not say what was wrong: $(cat "$WORK/said")"
is_nowhere "$KEY" "the key"
KEY=$(cat "$WORK/h1.key")

say "teardown"
network "list allowed_ips '10.9.0.2/99'"
forget_told
netifd teardown
expect "what netifd is told" 2 "$(jq -r .action "$router/told" | xargs)"
leaves_nothing

say "a setup that fails: a line that is wrong"
forget_told
netifd setup
expect "setup is ended" 143 "$STATUS"
grep -q "10.9.0.2/99" "$WORK/said" || fail "the log does not say what was wrong: $(cat "$WORK/said")"
expect "what netifd shows" '["INVALID_CONFIGURATION"]' "$(told 'select(.action == 3).error')"
expect "the last word" 7 "$(jq -r .action "$router/told" | tail -n 1)"
expect "addresses that were set" "" "$(told 'select(.action == 0)')"
netifd teardown
leaves_nothing

say "a setup that fails: the daemon cannot start"
ip -n h1 link add wg1 type veth peer name taken # the name is taken
network
forget_told
netifd setup
expect "setup is ended" 143 "$STATUS"
expect "what netifd is told" 1 "$(jq -r .action "$router/told" | xargs)"
started=$(now_ms)
netifd teardown
expect "what netifd shows" '["DAEMON_FAILED"]' "$(told 'select(.action == 3).error')"
expect_at_least "ms before netifd sets up again" 4000 $(($(now_ms) - started))
grep -q "status $(cat "$router/error")" "$WORK/said" || fail "the log does not have the daemon's status: $(cat "$WORK/said")"
ip -n h1 link delete wg1
leaves_nothing

say "a setup that fails: a daemon that netifd has not started has the name"
daemon h1 wg1
on h1 wg set wg1 private-key "$WORK/h3.key"
forget_told
netifd setup
expect "what netifd shows" '["NAME_TAKEN"]' "$(told 'select(.action == 3).error')"
expect "what netifd is told" "3 7" "$(jq -r .action "$router/told" | xargs)"
expect "the key of that daemon" "$(public h3)" "$(on h1 wg show wg1 public-key)"
netifd teardown
stop_daemon wg1
leaves_nothing

say "a port that is not set stays the same; a private key that is to be made is stored"
KEY=generate PORT=
network
forget_told
netifd setup
expect "setup" 0 "$STATUS"
made=$(sed -n "s/^option private_key '\(.*\)'$/\1/p" "$router/uci/network")
expect "the key that runs" "$(wg pubkey <<<"$made")" "$(on h1 wg show wg1 public-key)"
is_nowhere "$made" "the key"
has_port() { (($(on h1 wg show wg1 listen-port))); }
wait_for 5 "wg1 to open its port" has_port
port=$(on h1 wg show wg1 listen-port)
netifd renew
expect "renew" 0 "$STATUS"
expect "the port" "$port" "$(on h1 wg show wg1 listen-port)"
expect "the key that is stored" "$made" "$(sed -n "s/^option private_key '\(.*\)'$/\1/p" "$router/uci/network")"

say "a daemon that ends by itself"
forget_told
kill -KILL "$(cat "$router/task")"
wait_for 5 "netifd to see it" test -e "$router/error"
netifd teardown
expect "what netifd shows" '["DAEMON_FAILED"]' "$(told 'select(.action == 3).error')"
netifd setup
expect "setup over what it left" 0 "$STATUS"
netifd teardown
leaves_nothing
