# The words of OpenWrt's /lib/functions.sh that handlers of protocols use, written to its documentation: UCI's files are
# lines in the shell's own syntax (`config TYPE NAME`, `option NAME VALUE`, `list NAME VALUE`). For `busybox ash`.
#
# Environment: UCI, the folder of the files.
# shellcheck shell=dash disable=SC1090,SC2154

config_load() {
	CONFIG_SECTIONS=
	CONFIG_COUNT=0
	. "$UCI/$1"
}
config() {
	CONFIG_COUNT=$((CONFIG_COUNT + 1))
	CONFIG_SECTION=${2:-cfg$CONFIG_COUNT}
	CONFIG_SECTIONS="$CONFIG_SECTIONS $CONFIG_SECTION"
	option TYPE "$1"
}
option() { eval "CONFIG_${CONFIG_SECTION}_$1=\$2"; }
list() { eval "CONFIG_${CONFIG_SECTION}_$1=\"\${CONFIG_${CONFIG_SECTION}_$1:+\$CONFIG_${CONFIG_SECTION}_$1 }\$2\""; }
config_get() { eval "$1=\"\${CONFIG_$2_$3:-\$4}\""; }
config_get_bool() {
	config_get "$@"
	eval "case \"\$$1\" in 1 | on | true | yes | enabled) $1=1 ;; 0 | off | false | no | disabled) $1=0 ;; *) $1=\$4 ;; esac"
}
config_foreach() { # FUNCTION TYPE
	local section type
	for section in $CONFIG_SECTIONS; do
		config_get type "$section" TYPE
		[ "$type" != "$2" ] || "$1" "$section"
	done
}
