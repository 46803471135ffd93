# A host on which a case takes place (quick.sh), in namespaces of its own: `bash host.sh SCRIPT`. It has a cable, eth0,
# with addresses, default routes and a narrower way to 203.0.113.0/24. The script is written in these words:
#
#   quick ARGUMENT...       runs wg-quick: its output, its messages and its exit code go into the transcript
#   as_nobody ARGUMENT...   the same as an ordinary user, with the programs of this folder and a shell
#   see COMMAND             writes what a command says into the transcript
#   saved                   writes what the file says into the transcript, the lines of each section in any order
#   host                    writes down what the host has become
#   gone NAME               waits until the daemon of an interface is gone

set -u
mount -t sysfs sysfs /sys
mount -a -T "$PLACE/fstab"
# The reference does not turn to a daemon where the kernel has WireGuard.
[[ ! -e /sys/module/wireguard ]] || mount -t tmpfs tmpfs /sys/module
cp -dR --preserve=mode "$PLACE/etc/." "$CASE/wireguard" /etc
cd "$PLACE/files" || exit

# Addresses that links make for themselves would differ each time.
echo 1 >/proc/sys/net/ipv6/conf/default/addr_gen_mode
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
ip -batch - <<END
link set lo up
link add eth0 mtu 1450 type veth peer name far
link set far up
link set eth0 up
address add 192.168.1.5/24 dev eth0
address add 2001:db8:1::5/64 dev eth0 nodad
route add default via 192.168.1.1
route add 203.0.113.0/24 via 192.168.1.2 mtu 1312
route add default via 2001:db8:1::1
END

transcript=$SEEN/heard
AS=()
quick() {
  local code
  echo "$ wg-quick $*" >>"$transcript"
  WG_QUICK_USERSPACE_IMPLEMENTATION=$ENGINE "${AS[@]}" wg-quick "$@" >"$SEEN/out" 2>"$SEEN/err"
  code=$?
  [[ ! -s $SEEN/out ]] || sed 's/^/out: /' "$SEEN/out" >>"$transcript"
  [[ ! -s $SEEN/err ]] || sed 's/^/err: /' "$SEEN/err" >>"$transcript"
  echo "code $code" >>"$transcript"
  [[ ${1:-} != down ]] || gone wg0
}
as_nobody() {
  ln -s "$(type -P bash)" "$(type -P readlink)" .
  local AS=(setpriv --reuid 65534 --clear-groups env PATH="$PLACE/$WHO/bin:$PWD")
  quick "$@"
}
see() { "$@" >>"$transcript" 2>&1; }
gone() { # NAME
  local try
  [[ ! -e /sys/class/net/$1 ]] || return
  for try in {1..500}; do
    [[ -e /run/wireguard/$1.sock ]] || return
    sleep 0.01
  done
}
saved() {
  {
    sed -E -n 's/^Address *= *//p' /etc/wireguard/wg0.conf | tr -s ', ' '\n' | sed '/^$/d; s/^/0 Address = /'
    grep -E '^(MTU|DNS|Table|SaveConfig|(Pre|Post)(Up|Down)) *=' /etc/wireguard/wg0.conf | sed 's/^/0 /'
    "$PLACE/reference/bin/wg-quick" strip wg0 | sections
  } | sort >>"$transcript"
}
sections() { awk '/^\[/ { section++ } /=/ { print section, $0 }'; } # each line with the number of its section
host() {
  {
    ip -j address show
    ip -j -d -batch - <<<$'route show table all\nrule show'
    ip -j -d -6 rule show
    nft list ruleset
    echo "src_valid_mark $(</proc/sys/net/ipv4/conf/all/src_valid_mark), files" /etc/wireguard/*
  } >>"$SEEN/host"
}
eval "$BEFORE"
eval "$1"
