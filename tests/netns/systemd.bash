# Words for scenarios with a real systemd as the process 1 of h1, sourced after tunnel-files.bash. Its PID namespace and
# cgroup are its own; /run, /etc and /var/lib are those of the scenario. The programs and units are where the packages
# put them, and it sees none of the machine's units.

systemd=$(ls /usr/lib/systemd/systemd /lib/systemd/systemd 2>/dev/null | head -n 1) || skip "there is no systemd"
units=$WORK/units
install -D -m 644 -t "$units" "$REPO"/packaging/systemd/*.{service,socket,target,timer}
for unit in sysinit basic shutdown network network-online nss-lookup multi-user; do echo "[Unit]" >"$units/$unit.target"; done
for unit in linerate@ wg-quick@ linerate-fleet@; do
  install -D -m 644 /dev/stdin "$units/$unit.service.d/scenario.conf" <<<"[Service]
Environment=LINERATE_SECCOMP=$LINERATE_SECCOMP"
done
mkfifo "$WORK/kmsg"
cat <>"$WORK/kmsg" >"$SCENARIO_LOGS/systemd.log" &

# systemd follows its services by cgroup. Cgroups are no part of the sandbox, so this one is removed at the end.
mkdir "$WORK/cgroup" "$WORK/upper" "$WORK/work"
mount -t cgroup2 cgroup2 "$WORK/cgroup" 2>/dev/null || skip "cgroup2 cannot be mounted"
cgroup=$(mktemp -d "$WORK/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/linerate-scenario.XXXXXX") ||
  skip "no right to make a cgroup"
remove_cgroup() {
  local tries
  echo 1 >"$cgroup/cgroup.kill"
  for ((tries = 0; tries < 100; tries++)); do
    find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null && return
    sleep 0.05
  done
}
trap remove_cgroup EXIT

boot() { # the new process 1, in its namespaces
  mount -t overlay -o "lowerdir=/usr/bin,upperdir=$WORK/upper,workdir=$WORK/work" overlay /usr/bin || exit
  install "$LINERATE" /usr/bin/linerate && install "$TUNNEL_DAEMON" /usr/bin/linerated || exit
  [[ ! -x $LINERATE_WEB ]] || install "$LINERATE_WEB" /usr/bin/linerate-web || exit
  [[ ! -x $LINERATE_PROXY ]] || install "$LINERATE_PROXY" /usr/bin/linerate-proxy || exit
  [[ ! -x $LINERATE_FLEET ]] || install "$LINERATE_FLEET" /usr/bin/linerate-fleet || exit
  ln -sf linerate /usr/bin/wg-quick
  mount --bind "$units" "${systemd%/systemd}/system" || exit
  # They make units, of /etc/init.d and of /etc/fstab for example.
  local generators
  for generators in "${systemd%/systemd}"/system-*generators /usr/local/lib/systemd/system-*generators; do
    [[ ! -e $generators ]] || mount -t tmpfs tmpfs "$generators" || exit
  done
  # The /sys of h1, whose interfaces are in it; without the kernel's WireGuard, as in tunnel-files.bash.
  mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /sys/module || exit
  mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit
  # What systemd does to a machine beyond its units stays undone.
  local folder
  for folder in /proc/sys/{fs,kernel,vm}; do
    mount --rbind "$folder" "$folder" && mount -o remount,bind,ro "$folder" || exit
  done
  mount --bind /dev/null /dev/console
  mount --bind "$WORK/kmsg" /dev/kmsg
  # As it would have done if it were the machine's: it hands credentials to services by mounts that they see.
  mount --make-rshared /
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=scenario \
    "$systemd" --system --unit=multi-user.target --log-target=kmsg --show-status=no
}
export -f boot
export LINERATE_WEB=${LINERATE_WEB:-$PROGRAMS/linerate-web} LINERATE_PROXY=${LINERATE_PROXY:-$PROGRAMS/linerate-proxy}
export LINERATE_FLEET=${LINERATE_FLEET:-$PROGRAMS/linerate-fleet}
export WORK systemd units
# Of what an administrator has set up nothing is for it, and it writes there.
mount -t tmpfs -o mode=0755 tmpfs /etc/systemd
mkdir /etc/systemd/system

switch_on() { # h1, with what is enabled
  (
    echo "$BASHPID" >"$cgroup/cgroup.procs"
    exec nsenter --net=/run/netns/h1 unshare --cgroup --mount --pid --fork --mount-proc --ipc --uts bash -c boot
  ) &>>"$SCENARIO_LOGS/boot.log" &
  wait_for 20 "systemd" test -S /run/systemd/private
  init=$(pgrep -ox systemd)
}
# A command where systemd runs.
inside() { timeout 60 nsenter --target "$init" --mount --pid --cgroup --net "$@"; }
service() { inside systemctl "$@"; }
property() { service show --property "$2" --value "$1"; } # UNIT NAME
