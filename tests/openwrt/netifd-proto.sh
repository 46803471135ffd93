# The words of netifd's /lib/netifd/netifd-proto.sh and libubox's jshn.sh that a handler of a protocol uses, written to
# their documentation, with jq. What netifd is told goes to it as there: `ubus call network.interface notify_proto JSON`.
# For `busybox ash`.
# shellcheck shell=dash disable=SC2034,SC2154

init_proto() { # PROTOCOL VERB INTERFACE DATA [DEVICE]
	PROTO=$1 VERB=$2 INTERFACE=$3 DEVICE=$5
}
add_protocol() { # NAME
	case $VERB in
		dump)
			CONFIG='[]'
			"proto_$1_init_config"
			jq -cn --arg name "$1" --argjson config "$CONFIG" --arg flags \
				"${no_device:-0} ${no_proto_task:-0} ${available:-0} ${renew_handler:-0} ${lasterror:-0}" '
				($flags | split(" ") | map(. == "1")) as $is | {name: $name, config: $config, "no-device": $is[0],
				"no-proto-task": $is[1], available: $is[2], "renew-handler": $is[3], lasterror: $is[4]}'
			;;
		*) [ "$PROTO" != "$1" ] || "proto_$1_$VERB" "$INTERFACE" "$DEVICE" ;;
	esac
}
declared() { # TYPE NAME : by blobmsg's numbers
	CONFIG=$(echo "$CONFIG" | jq -c --arg name "$2" --argjson type "$1" '. + [[$name, $type]]')
}
proto_config_add_array() { declared 1 "$1"; }
proto_config_add_string() { declared 3 "$1"; }
proto_config_add_int() { declared 5 "$1"; }
proto_config_add_boolean() { declared 7 "$1"; }

notify() { # INTERFACE JSON
	ubus call network.interface notify_proto "$(echo "$2" | jq -c --arg interface "$1" '. + {interface: $interface}')"
}
words() { jq -cn '$ARGS.positional' --args -- "$@"; }
proto_export() { EXPORTED="$EXPORTED $1"; }
proto_run_command() { # INTERFACE WORD...
	local interface=$1
	shift
	# shellcheck disable=SC2086 # one word each
	notify "$interface" "$(jq -cn --argjson command "$(words "$@")" --argjson env "$(words $EXPORTED)" \
		'{action: 1, command: $command, env: $env}')"
}
proto_kill_command() { notify "$1" '{"action": 2}'; }
proto_notify_error() { # INTERFACE WORD...
	local interface=$1
	shift
	notify "$interface" "$(jq -cn --argjson error "$(words "$@")" '{action: 3, error: $error}')"
}
proto_block_restart() { notify "$1" '{"action": 4}'; }
proto_add_host_dependency() { # INTERFACE HOST [BY]
	notify "$1" "$(jq -cn --arg host "$2" --arg ifname "$3" \
		'{action: 6, host: $host} + if $ifname == "" then {} else {ifname: $ifname} end')"
}
proto_setup_failed() { notify "$1" '{"action": 7}'; }

proto_init_update() { # DEVICE UP
	UPDATE=$(jq -cn --arg ifname "$1" --argjson up "$([ "$2" = 1 ] && echo true || echo false)" \
		'{action: 0, ifname: $ifname, "link-up": $up}')
}
add() { # LIST OBJECT
	UPDATE=$(echo "$UPDATE" | jq -c --arg list "$1" --argjson object "$2" '.[$list] += [$object]')
}
address() { jq -cn --arg ipaddr "$1" --arg mask "$2" '{ipaddr: $ipaddr, mask: $mask}'; }
route() { jq -cn --arg target "$1" --arg netmask "$2" '{target: $target, netmask: $netmask}'; }
proto_add_ipv4_address() { add ipaddr "$(address "$@")"; }
proto_add_ipv6_address() { add ip6addr "$(address "$@")"; }
proto_add_ipv4_route() { add routes "$(route "$@")"; }
proto_add_ipv6_route() { add routes6 "$(route "$@")"; }
proto_add_ipv6_prefix() { add ip6prefix "\"$1\""; }
proto_send_update() { notify "$1" "$UPDATE"; }
