# Words for scenarios about servers, sourced after lib.sh and tunnel-files.bash: h1 is a host that becomes a server, and
# the internet is between it, a laptop and a web server:
#
#   h1 e1 203.0.113.5, 2001:db8:1::5 - inet - laptop l1 192.0.2.2, 2001:db8:2::2
#                                       |
#                                      web w1 198.51.100.2, 2001:db8:3::2
#
# inet knows no other networks: what it does not translate, nobody answers.

mount -t tmpfs -o mode=0755 tmpfs /var/lib
unset LINERATE_USER WG_QUICK_BACKEND

internet() {
  host h1 inet laptop web
  cable h1 e1 inet i1
  cable laptop l1 inet i2
  cable web w1 inet i3
  forwarding inet
  address inet i1 203.0.113.1/24 2001:db8:1::1/64
  address inet i2 192.0.2.1/24 2001:db8:2::1/64
  address inet i3 198.51.100.1/24 2001:db8:3::1/64
  address h1 e1 203.0.113.5/24 2001:db8:1::5/64
  address laptop l1 192.0.2.2/24 2001:db8:2::2/64
  address web w1 198.51.100.2/24 2001:db8:3::2/64
  ip -n h1 route add default via 203.0.113.1
  ip -n h1 -6 route add default via 2001:db8:1::1
  ip -n laptop route add default via 192.0.2.1
  ip -n laptop -6 route add default via 2001:db8:2::1
  ip -n web route add default via 198.51.100.1
  ip -n web -6 route add default via 2001:db8:3::1
}

# All of h1 that a server changes and that its removal has to leave as it was.
whole_state() {
  state
  at h1 sysctl -a -r '^net\.(ipv4\.ip_forward|ipv[46]\.conf\..*(forwarding|accept_ra|rp_filter|src_valid_mark))' 2>/dev/null
  find /etc/wireguard /etc/init.d /etc/runlevels /var/lib /run/systemd -printf '%p %m %y %l\n' 2>/dev/null | sort || true
  find /etc/wireguard /var/lib -type f -exec md5sum {} + | sort || true
}
remember_all() { whole_state >"$WORK/before-all"; }
all_as_before() { # WHAT
  diff "$WORK/before-all" <(whole_state) >"$WORK/diff" || fail "$1: the host is not as it was: $(tr '\n' ' ' <"$WORK/diff")"
  say "$1: the host is as it was"
}

# linerate with several words on h1, as `good', `bad' and `said' know the command.
server() { good linerate server "$@"; }      # VERB [OPTION...]
no_server() { bad linerate server "$@"; }
shown() { at h1 "$LINERATE" server show wg0 --json | jq -r ".[0]$1"; } # FILTER
in_file() { # WHAT PATTERN
  grep -qE -- "$2" /etc/wireguard/wg0.conf || fail "$1: expected a line like '$2', saw: $(grep -v PrivateKey /etc/wireguard/wg0.conf)"
  say "$1: $(grep -E -- "$2" /etc/wireguard/wg0.conf)"
}
is_up() { at h1 wg show wg0 listen-port 2>/dev/null; }
