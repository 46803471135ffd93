# Words for the scripts here that make samples, sourced first. Each runs a tool as its users do and keeps what it leaves:
#
#   make-TOOL.sh REPOSITORY COMMIT FOLDER
#
# REPOSITORY is a clone of the tool, COMMIT the version to run, FOLDER where the sample goes. Needs root, wireguard-tools,
# wireguard-go, iptables and what the tool needs. Everything runs in namespaces of its own with a copy of /etc. These
# stand in for what is not there or would reach out: apt-get, qrencode, curl and wget do nothing, systemctl starts what
# the units say, systemd-detect-virt says "none", killall does nothing. `wg genkey` makes the same keys each time, which
# nobody uses.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(realpath "$1") commit=$2 folder=$(realpath -m "$3")

if [[ -z ${INSIDE:-} ]]; then
  INSIDE=$(mktemp -d)
  trap 'rm -rf "$INSIDE"' EXIT
  git -C "$repository" archive "$commit" | tar -x -C "$INSIDE"
  ! declare -F prepare >/dev/null || (cd "$INSIDE" && prepare)
  export INSIDE
  unshare --mount --net --pid --fork --kill-child --mount-proc "$0" "$repository" "$commit" "$folder"
  exit
fi

mount -t tmpfs tmpfs /run
mkdir -p /run/etc /run/wireguard /run/bin
cp -a /etc/. /run/etc
mount --bind /run/etc /etc
rm -rf /etc/wireguard /etc/pivpn && mkdir /etc/wireguard
rm -f /etc/sysctl.d/*
mount -t tmpfs tmpfs /var/lib
# As the installers find a host: one interface with addresses of both families and default routes.
ip link set lo up
ip link add eth0 type veth peer name uplink
ip link set eth0 up && ip link set uplink up
ip address add 198.51.100.7/24 dev eth0
ip address add 2001:db8:5::7/64 dev eth0 nodad
ip route add default via 198.51.100.1
ip -6 route add default via 2001:db8:5::1
printf 'nameserver 9.9.9.9\n' >/etc/resolv.conf

stand_in() { cat >"/run/bin/$1" && chmod +x "/run/bin/$1"; } # NAME <SCRIPT
for name in apt-get qrencode curl wget killall sysctl; do stand_in $name <<<$'#!/bin/sh\nexit 0'; done
stand_in systemd-detect-virt <<<$'#!/bin/sh\necho none\nexit 1'
stand_in wg <<WG
#!/bin/bash
# Keys that follow from the sample's name and their number.
case \$1 in
  genkey | genpsk)
    number=\$(cat /run/number 2>/dev/null || echo 0)
    echo \$((number + 1)) >/run/number
    printf '%s %s' "${folder##*/}" "\$number" | perl -MDigest::SHA=sha256 -MMIME::Base64 -e '
      my @key = unpack "C32", sha256(<STDIN>);
      \$key[0] &= 248; \$key[31] = \$key[31] & 127 | 64;
      print encode_base64(pack "C32", @key)'
    ;;
  *) exec $(type -P wg) "\$@" ;;
esac
WG
stand_in systemctl <<'SYSTEMCTL'
#!/bin/bash
verb=$1 now=0
shift
for unit; do
  case $unit in
    --now) now=1 && continue ;;
    -*) continue ;;
  esac
  unit=${unit%.service}
  case $verb/$unit in
    start/wg-quick@* | enable/wg-quick@*)
      [[ $verb == enable && $now == 0 ]] || ip link show "${unit#*@}" &>/dev/null || wg-quick up "${unit#*@}"
      ;;
    reload/wg-quick@*) wg syncconf "${unit#*@}" <(wg-quick strip "${unit#*@}") ;;
    is-active/wg-quick@*) ip link show "${unit#*@}" &>/dev/null || exit 3 ;;
    is-active/*) exit 3 ;;
    start/* | enable/*) sed -n 's/^ExecStart=//p' "/etc/systemd/system/$unit.service" | bash -e || exit ;;
  esac
done
SYSTEMCTL
mount --bind /run/bin /usr/local/sbin # some choose PATH themselves
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export WG_QUICK_USERSPACE_IMPLEMENTATION=wireguard-go WG_HIDE_KEYS=never TERM=dumb

# Gives a program lines to read, a moment after it has started: some read away what is typed ahead.
answers() { # LINE... : before a pipe
  sleep 0.5
  printf '%s\n' "$@"
}
# What remains of the tool on the host, and is of interest to an import.
keep_host() { # PATH...
  local path
  for path; do
    [[ ! -e $path ]] || install -Dm 644 "$path" "$folder/host$path"
  done
}
fresh() { # what was made before goes, but not what an import makes of it
  mkdir -p "$folder"
  find "$folder" -mindepth 1 -maxdepth 1 ! -name 'expected.*' -exec rm -rf {} +
  mkdir -p "$folder/clients"
}
