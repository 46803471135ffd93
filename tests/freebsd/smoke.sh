#!/bin/sh
# Whether linerated works on FreeBSD, on a machine that may be spoiled: a virtual one with FreeBSD 14 or 15 (GENERIC).
#
#   tests/freebsd/smoke.sh LINERATED      as root; ten minutes at most
#
# linerate-wg, if it is in the same folder, is compared with the system's wg; linerate, if it is, brings a file's tunnel up.
#
# A line for each check, and at the end `N passed, N failed, N skipped`; the rest is for people: what each ioctl of the
# set-up answers, how fast a tunnel is between two vnet jails and how many system calls that takes, beside the kernel's
# if_wg and wireguard-go. Everything that was said is in /var/tmp/linerate-smoke. Useful packages:
# iperf3 wireguard-go wireguard-tools.
set -u
export LC_ALL=C PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin

work=/var/tmp/linerate-smoke
sockets=/var/run/wireguard
passed=0 failed=0 skipped=0
ok() { passed=$((passed + 1)) && echo "ok   $1"; }
bad() { failed=$((failed + 1)) && echo "FAIL $1${2:+ - $2}"; }
skip() { skipped=$((skipped + 1)) && echo "skip $1 - $2"; }
check() { # NAME COMMAND... : what it says is in $work/NAME.log
	check_name=$1
	shift
	if "$@" >"$work/$check_name.log" 2>&1 </dev/null; then
		ok "$check_name"
	else
		bad "$check_name" "$work/$check_name.log: $(tail -n 1 "$work/$check_name.log")"
	fi
}
title() { printf '\n== %s\n' "$1"; }
has() { command -v "$1" >/dev/null; }
# Waits at most five seconds.
soon() {
	tries=0
	while ! "$@" >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ "$tries" -lt 50 ] || return 1
		sleep 0.1
	done
}
gone() { ! "$@" >/dev/null 2>&1; }

[ "$(uname -s)" = FreeBSD ] || { echo "this is not FreeBSD" && exit 2; }
[ "$(id -u)" = 0 ] || { echo "run it as root" && exit 2; }
if [ $# != 1 ] || [ ! -x "$1" ]; then echo "usage: $0 LINERATED" && exit 2; fi
linerated=$(realpath "$1")
rm -rf "$work"
mkdir -p "$work"

tidy() {
	for tunnel in smoke0 smokef smokea smokeb; do rm -f "$sockets/$tunnel.sock"; done
	sleep 1
	for jail in smokea smokeb; do jail -r "$jail" 2>/dev/null; done
	[ -z "${epair:-}" ] || ifconfig "$epair" destroy 2>/dev/null
}
trap tidy EXIT
trap 'exit 1' INT TERM

title "the machine"
uname -a
sysctl hw.model hw.ncpu kern.ipc.maxsockbuf net.link.ifqmaxlen net.inet.udp.maxdgram
kldload -n if_tuntap if_wg if_epair
"$linerated" --version || bad runs "the program does not start"

# --- one interface ------------------------------------------------------------------------------------------------

title "each call that sets the interface up, and its answer"
truss -f -o "$work/truss" "$linerated" smoke0 >"$work/up.log" 2>&1 </dev/null &
if soon test -S "$sockets/smoke0.sock"; then
	ok up
else
	bad up "$(tail -n 1 "$work/up.log")"
fi
grep -E '(ioctl|openat?|kqueue|eventfd|procctl|setsockopt|bind|socket)\(' "$work/truss" |
	grep -E 'ioctl|/dev/tun|kqueue|eventfd|procctl|setsockopt|bind|PF_ROUTE' | sed 's/^[0-9]*: //' | sort | uniq -c | sort -rn
ifconfig smoke0
check owner sh -c 'ifconfig smoke0 | grep "Opened by PID"'
check not-point-to-point sh -c '! ifconfig smoke0 | grep POINTOPOINT'
check no-link-local sh -c '! ifconfig smoke0 | grep fe80:'
check node test -c /dev/smoke0
check uapi wg show smoke0
check key sh -c 'wg genkey | wg set smoke0 private-key /dev/stdin listen-port 51999'
ours=$(dirname "$linerated")/linerate-wg
if [ -x "$ours" ]; then
	check wg-alike sh -c 'test "$("$0" show smoke0 dump)" = "$(wg show smoke0 dump)"' "$ours"
else
	skip wg-alike "there is no $ours"
fi
check addresses sh -c 'ifconfig smoke0 inet 10.90.0.1/24 alias && ifconfig smoke0 inet6 fd00:90::1/64 alias'
check mtu ifconfig smoke0 mtu 1420
check comes-up ifconfig smoke0 up
check listens soon sh -c 'sockstat -46l | grep -q ":51999"'
check listens-on-both sh -c 'test "$(sockstat -46l | grep -c ":51999")" = 2'
check name-is-refused sh -c '! "$0" -f smoke0' "$linerated"
check down-closes sh -c 'ifconfig smoke0 down; sleep 1; ! sockstat -46l | grep ":51999"'
check second-daemon-says-why grep smoke0 "$work/name-is-refused.log"
rm -f "$sockets/smoke0.sock"
check socket-ends-it soon gone ifconfig smoke0
"$linerated" smoke0 >"$work/again.log" 2>&1 </dev/null || bad again "$(tail -n 1 "$work/again.log")"
# It waits until the daemon notices.
check destroy-ends-it timeout 10 ifconfig smoke0 destroy
check destroyed soon gone ifconfig smoke0
check no-daemon-is-left soon gone pgrep -f "linerated smoke0"
"$linerated" smoke0 >"$work/killed.log" 2>&1 </dev/null
pkill -KILL -f "linerated smoke0"
sleep 1
if ifconfig smoke0 >/dev/null 2>&1; then
	echo "note: after SIGKILL the interface is left over (no TUNSTRANSIENT here)"
	ifconfig smoke0 destroy
fi
check up-after-a-crash "$linerated" smoke0
rm -f "$sockets/smoke0.sock"

# --- the tunnel of a file, by linerate -----------------------------------------------------------------------------

title "linerate up, reload and down"
linerate=$(dirname "$linerated")/linerate
file=$work/smokef.conf
# What a tunnel may change, without what changes by itself.
host_is() { ifconfig -l && netstat -rn | awk '{ print $1, $2, $3 }' && cat /etc/resolv.conf; }
goes_to() { route -n get "-$1" "$2" | grep "interface: $3\$"; } # FAMILY ADDRESS INTERFACE
write_file() { # ALLOWED-IPS
	cat >"$file" <<-END
		[Interface]
		PrivateKey = $(wg genkey)
		ListenPort = 51998
		Address = 10.92.0.1/24, fd00:92::1/64
		DNS = 192.0.2.53
		[Peer]
		PublicKey = $(wg genkey | wg pubkey)
		Endpoint = 198.51.100.1:51820
		AllowedIPs = $1
	END
}
if [ ! -x "$linerate" ]; then
	skip linerate "there is no $linerate"
else
	umask 077
	host_is >"$work/before"
	check linerate-keys sh -c 'key=$("$0" genkey) && test "$(echo "$key" | "$0" pubkey)" = "$(echo "$key" | wg pubkey)"' "$linerate"
	write_file "10.93.0.0/16, fd00:93::/64"
	check linerate-plan "$linerate" plan "$file"
	cat "$work/linerate-plan.log"
	check linerate-up "$linerate" up --verbose "$file"
	cat "$work/linerate-up.log"
	check linerate-address sh -c 'ifconfig smokef | grep "inet 10.92.0.1 " && ifconfig smokef | grep "inet6 fd00:92::1 "'
	check linerate-route goes_to inet 10.93.1.1 smokef
	check linerate-route6 goes_to inet6 fd00:93::7 smokef
	check linerate-dns grep 192.0.2.53 /etc/resolv.conf
	check linerate-show sh -c 'test "$("$0" show smokef dump)" = "$(wg show smokef dump)"' "$linerate"
	check linerate-status sh -c '"$0" status smokef | grep "10.92.0.1/24"' "$linerate"
	check linerate-top "$linerate" top --batch -n 1
	check linerate-metrics "$linerate" metrics
	# The endpoint's own network: it stays outside.
	sed -i '' 's|10.93.0.0/16|198.51.100.0/24|' "$file"
	check linerate-reload "$linerate" reload --verbose "$file"
	cat "$work/linerate-reload.log"
	check linerate-reload-adds goes_to inet 198.51.100.7 smokef
	check linerate-reload-removes gone goes_to inet 10.93.1.1 smokef
	check linerate-endpoint gone goes_to inet 198.51.100.1 smokef
	check linerate-down "$linerate" down --verbose "$file"
	check linerate-is-gone soon gone ifconfig smokef
	host_is >"$work/after"
	check linerate-leaves-nothing diff "$work/before" "$work/after"
	# A daemon that was killed leaves an interface, which down removes.
	"$linerate" up "$file" >"$work/linerate-again.log" 2>&1 || bad linerate-again "$(tail -n 1 "$work/linerate-again.log")"
	pkill -KILL -f "linerated smokef"
	sleep 1
	check linerate-down-after-a-crash "$linerate" down "$file"
	check linerate-crash-leaves-nothing soon gone ifconfig smokef
fi

# --- a tunnel between two vnet jails ------------------------------------------------------------------------------

title "a tunnel between two jails"
epair=$(ifconfig epair create)
other=${epair%a}b
for end in a b; do
	jail -c name=smoke$end path=/ vnet persist allow.raw_sockets || bad jail-$end "needs VIMAGE"
done
ifconfig "$epair" vnet smokea
ifconfig "$other" vnet smokeb
jexec smokea ifconfig "$epair" inet 192.0.2.1/24 up
jexec smokeb ifconfig "$other" inet 192.0.2.2/24 up
jexec smokea ifconfig lo0 up
jexec smokeb ifconfig lo0 up
umask 077
for end in a b; do
	wg genkey >"$work/key$end"
	wg pubkey <"$work/key$end" >"$work/public$end"
done

# The tunnel of one end, run by linerated, wireguard-go or the kernel.
make_end() { # END KIND
	case $2 in
	kernel) jexec smoke"$1" ifconfig wg create name smoke"$1" ;;
	*) jexec smoke"$1" "$2" smoke"$1" ;;
	esac >"$work/$(basename "$2")-$1.log" 2>&1 </dev/null || return 1
	case $1 in
	a) mine=1 theirs=2 peer=$(cat "$work/publicb") ;;
	b) mine=2 theirs=1 peer=$(cat "$work/publica") ;;
	esac
	jexec smoke"$1" wg set smoke"$1" private-key "$work/key$1" listen-port 51820 peer "$peer" \
		allowed-ips "10.91.0.$theirs/32,fd00:91::$theirs/128" endpoint "192.0.2.$theirs:51820" &&
		jexec smoke"$1" ifconfig smoke"$1" inet "10.91.0.$mine/24" mtu 1420 up &&
		jexec smoke"$1" ifconfig smoke"$1" inet6 "fd00:91::$mine/64" alias
}
end_end() { # END
	if [ -S "$sockets/smoke$1.sock" ]; then
		rm -f "$sockets/smoke$1.sock"
	else
		jexec smoke"$1" ifconfig smoke"$1" destroy 2>/dev/null
	fi
	soon gone jexec smoke"$1" ifconfig smoke"$1"
}
both_ways() {
	jexec smokea ping -c 3 -t 10 10.91.0.2 && jexec smokeb ping -c 3 -t 10 10.91.0.1 &&
		jexec smokea ping -6 -c 3 -t 10 fd00:91::2 &&
		# Above the MTU: fragments inside.
		jexec smokea ping -c 2 -t 10 -s 4000 10.91.0.2
}
# Speed, and the system calls of the sender's daemon for two seconds of it.
speed() { # KIND
	has iperf3 || { skip "$1-speed" "no iperf3" && return; }
	jexec smokeb iperf3 -s -1 -D >/dev/null 2>&1
	sleep 1
	jexec smokea iperf3 -c 10.91.0.2 -t 6 >"$work/$1-iperf3.log" 2>&1 &
	load=$!
	sleep 2
	pid=$(pgrep -f "$(basename "$1") smokea" | head -n 1)
	if [ -n "$pid" ]; then
		ktrace -f "$work/ktrace" -t c -p "$pid" && sleep 2
		ktrace -c -p "$pid"
		kdump -f "$work/ktrace" | awk '$3 == "CALL" { sub(/\(.*/, "", $4); n[$4]++; all++ }
			END { printf "system calls in 2 s: %d\n", all; for (c in n) printf "%10d %s\n", n[c], c }' | sort -rn | head -8
		rm -f "$work/ktrace"
	fi
	wait "$load"
	grep -E 'sender|receiver|error' "$work/$1-iperf3.log"
}

for kinds in "$linerated $linerated" "$linerated kernel" "kernel $linerated" "wireguard-go wireguard-go" "kernel kernel"; do
	a=${kinds% *} b=${kinds#* }
	name="$(basename "$a")-to-$(basename "$b")"
	title "$name"
	case $kinds in *wireguard-go*) has wireguard-go || { skip "$name" "no wireguard-go" && continue; } ;; esac
	if make_end a "$a" && make_end b "$b"; then
		check "$name" both_ways
		speed "$a"
		jexec smokea wg show smokea
		[ "$a" != "$linerated" ] || ps -o pid,time,rss,command -p "$(pgrep -f 'linerated smokea' | head -n 1)"
	else
		bad "$name" "an end does not come up: $work/$(basename "$a")-a.log"
	fi
	end_end a
	end_end b
done

echo
echo "$passed passed, $failed failed, $skipped skipped; logs in $work"
[ "$failed" = 0 ]
