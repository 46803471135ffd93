#!/bin/sh
# netifd's protocol `linerate`: WireGuard tunnels in user space, with the options of `proto wireguard`.
#
#   config interface 'wg0'            config linerate_wg0
#     option proto 'linerate'           option public_key '...'
#     option private_key '...'          option endpoint_host '192.0.2.1'
#     list addresses '10.0.0.1/24'      list allowed_ips '10.0.0.2/32'
#
# netifd runs and watches the daemon, and sets the addresses and routes that it is told of here. Keys go through a pipe,
# never into a file.
#
# shellcheck disable=SC3043 # busybox has local

[ -n "$INCLUDE_ONLY" ] || {
	. /lib/functions.sh
	. ../netifd-proto.sh
	init_proto "$@"
}

proto_linerate_init_config() {
	# shellcheck disable=SC2034 # netifd reads these variables
	{
		no_device=1
		available=1
		renew_handler=1
		# The last error is kept over the next setup, and no other.
		lasterror=1
	}
	# Not the private key: netifd hands what is declared here over in command lines.
	proto_config_add_int "listen_port"
	proto_config_add_int "mtu"
	proto_config_add_string "fwmark"
	proto_config_add_array "addresses"
	proto_config_add_array "ip6prefix"
	proto_config_add_boolean "nohostroute"
	proto_config_add_string "tunlink"
}

proto_linerate_setup() {
	local config="$1"

	linerate_start "$config" && linerate_apply "$config" setup && return
	# netifd takes down what there is, and tries again at once.
	sleep 5
	proto_setup_failed "$config"
	return 1
}

# Peers' sections are read again, whose changes netifd does not see, and endpoints looked up. Sessions stay; so does the
# tunnel, as it is, if that fails.
proto_linerate_renew() {
	linerate_apply "$1" renew
}

# The interface and its socket go with the daemon, and with the interface all that is set on it.
proto_linerate_teardown() {
	proto_kill_command "$1"
	# netifd sets it when the daemon ended by itself, be it during a setup, which netifd then ends at once. It sets up
	# again as soon as this ends, and waits for that no longer than five seconds.
	[ -n "$ERROR" ] || return 0
	linerate_error "$1" DAEMON_FAILED "linerated ended by itself (status $ERROR); logread says why"
	sleep 4
}

linerate_start() {
	local config="$1"
	local deadline

	[ -c /dev/net/tun ] || {
		linerate_error "$config" NO_TUN_DEVICE "there is no /dev/net/tun: install kmod-tun"
		return 1
	}
	# The settings would go to that one.
	if linerate wg show "$config" listen-port >/dev/null 2>&1; then
		linerate_error "$config" NAME_TAKEN "a tunnel of this name runs already, which netifd has not started"
		return 1
	fi
	proto_export "LOG_LEVEL=error"
	proto_run_command "$config" /usr/bin/linerated -f "$config"
	deadline=$(($(linerate_uptime) + 30))
	until linerate wg show "$config" listen-port >/dev/null 2>&1; do
		[ "$(linerate_uptime)" -lt "$deadline" ] || {
			linerate_error "$config" DAEMON_FAILED "linerated does not answer; logread says why"
			return 1
		}
		sleep 0.1 2>/dev/null || sleep 1
	done
}

linerate_uptime() {
	local seconds

	read -r seconds </proc/uptime
	echo "${seconds%%.*}"
}

linerate_apply() {
	local config="$1"
	local verb="$2"
	local private_key listen_port mtu fwmark addresses ip6prefix nohostroute tunlink
	local peers named routes said item

	# Not from the JSON that netifd gives: it has no keys, and a message to netifd forgets it.
	config_load network
	config_get private_key "$config" private_key
	config_get listen_port "$config" listen_port
	config_get mtu "$config" mtu
	config_get fwmark "$config" fwmark
	config_get addresses "$config" addresses
	config_get ip6prefix "$config" ip6prefix
	config_get_bool nohostroute "$config" nohostroute 0
	config_get tunlink "$config" tunlink
	linerate_key "$config" || {
		linerate_error "$config" NO_PRIVATE_KEY "a private key could not be made and stored"
		return 1
	}
	config_foreach linerate_peer "linerate_$config"
	# Without one the daemon would take another port with each renew.
	[ "$verb" = setup ] || listen_port="${listen_port:-$(linerate wg show "$config" listen-port)}"

	said="$(linerate_settings | WG_ENDPOINT_RESOLUTION_RETRIES=1 linerate wg syncconf "$config" /dev/stdin 2>&1)" || {
		# A key that is mistyped may be a private one.
		said="$(printf '%s\n' "$said" | sed 's/\(Key is not the correct length or format\): .*/\1/')"
		linerate_error "$config" INVALID_CONFIGURATION "$said"
		return 1
	}
	[ -z "$mtu" ] || ip link set mtu "$mtu" dev "$config"
	# Each in a message of its own, ahead of the one that is put together below.
	[ "$nohostroute" = 1 ] || for item in $(linerate_endpoints "$config"); do
		case "$verb" in
			setup) proto_add_host_dependency "$config" "$item" "$tunlink" ;;
			renew) linerate_host_route "$config" "$item" "$tunlink" ;;
		esac
	done

	proto_init_update "$config" 1
	for item in $addresses; do
		case "$item" in
			*:*/*) proto_add_ipv6_address "${item%%/*}" "${item##*/}" ;;
			*/*) proto_add_ipv4_address "${item%%/*}" "${item##*/}" ;;
			*:*) proto_add_ipv6_address "$item" 128 ;;
			*) proto_add_ipv4_address "$item" 32 ;;
		esac
	done
	for item in $ip6prefix; do proto_add_ipv6_prefix "$item"; done
	for item in $routes; do
		case "$item" in
			*:*/*) proto_add_ipv6_route "${item%%/*}" "${item##*/}" ;;
			*/*) proto_add_ipv4_route "${item%%/*}" "${item##*/}" ;;
			*:*) proto_add_ipv6_route "$item" 128 ;;
			*) proto_add_ipv4_route "$item" 32 ;;
		esac
	done
	proto_send_update "$config"
}

# A private key that is not there yet is made, and stored: through a pipe, as everybody may read command lines, and by
# the file's path, as uci then changes the file at once, without what others have set and not committed.
linerate_key() {
	local option="/etc/config/network.$1.private_key"

	[ -z "$private_key" ] || [ "$private_key" = generate ] || return 0
	private_key="$(linerate wg genkey)" || return
	echo "set $option=$private_key" | uci -q batch
	# A batch never fails.
	[ "$(uci -q get "$option")" = "$private_key" ]
}

# Adds the section of a peer to $peers, its key to $named if it has an endpoint, and what is routed to it to $routes.
linerate_peer() {
	local section="$1"
	local disabled public_key preshared_key endpoint_host endpoint_port allowed_ips route_allowed_ips persistent_keepalive

	config_get_bool disabled "$section" disabled 0
	config_get public_key "$section" public_key
	[ "$disabled" = 0 ] && [ -n "$public_key" ] || return 0
	config_get preshared_key "$section" preshared_key
	config_get endpoint_host "$section" endpoint_host
	config_get endpoint_port "$section" endpoint_port 51820
	config_get allowed_ips "$section" allowed_ips
	config_get_bool route_allowed_ips "$section" route_allowed_ips 0
	config_get persistent_keepalive "$section" persistent_keepalive

	case "$endpoint_host" in
		\[*) ;;
		*:*) endpoint_host="[$endpoint_host]" ;;
	esac
	peers="$peers
[Peer]
PublicKey = $public_key
${preshared_key:+PresharedKey = $preshared_key
}${endpoint_host:+Endpoint = $endpoint_host:$endpoint_port
}${persistent_keepalive:+PersistentKeepalive = $persistent_keepalive
}$(for item in $allowed_ips; do echo "AllowedIPs = $item"; done)
"
	[ -z "$endpoint_host" ] || named="$named $public_key"
	[ "$route_allowed_ips" = 0 ] || routes="$routes $allowed_ips"
}

linerate_settings() {
	echo "[Interface]"
	echo "PrivateKey = $private_key"
	[ -z "$listen_port" ] || echo "ListenPort = $listen_port"
	[ -z "$fwmark" ] || echo "FwMark = $fwmark"
	echo "$peers"
}

# The addresses of endpoints that are configured; others are where a peer came from. A link's own needs no route.
linerate_endpoints() {
	linerate wg show "$1" endpoints | while read -r public_key endpoint; do
		case "$named " in *" $public_key "*) echo "$endpoint" ;; esac
	done | sed -n 's/^\[\{0,1\}\([0-9a-f.:]*\)\]\{0,1\}:[0-9]*$/\1/p' | sort -u
}

# The route to an endpoint, past the tunnel. At a renew it is no dependency: netifd would look for that among the
# tunnel's own routes as well, and take the tunnel down if there was none.
linerate_host_route() {
	local v6=false
	local by="\"interface\": \"$1\", \"exclude\": true"

	case "$2" in *:*) v6=true ;; esac
	[ -z "$3" ] || by="\"interface\": \"$3\""
	ubus -S call network add_host_route "{\"target\": \"$2\", \"v6\": $v6, $by}" >/dev/null ||
		echo "$1: there is no route to the endpoint $2" >&2
}

# `ifstatus` shows the code, logread the words.
linerate_error() {
	echo "$1: $3" >&2
	proto_notify_error "$1" "$2"
}

[ -n "$INCLUDE_ONLY" ] || add_protocol linerate
