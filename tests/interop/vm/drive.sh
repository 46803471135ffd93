# Boots the guest (vm/build) beside a host of a scenario and drives it; sourced after netns/lib.sh.
# The guest is emulated in software, so that it runs anywhere, and is slow: it proves the protocol, not a speed.

VM=$REPO/target/kernel-vm

boot_guest() { # HOST DEVICE : the guest's eth0 is at the other end of this new device
  [[ -s $VM/vmlinuz && -s $VM/initrd ]] || skip "the guest is not built (tests/interop/vm/build)"
  need qemu-system-x86_64 nc
  ip -n "$1" tuntap add "$2" mode tap
  ip -n "$1" link set "$2" up
  address "$1" "$2" 169.254.77.1/30
  pack_ours >"$WORK/initrd"
  # On a busy machine the guest may find its TSC to be forty times slower than it is, so that is not its clock.
  ip netns exec "$1" nice qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
    -accel tcg -cpu max -m 384 -kernel "$VM/vmlinuz" -initrd "$WORK/initrd" -serial "file:$SCENARIO_LOGS/console.log" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check tsc=unstable random.trust_cpu=on" \
    -netdev "tap,id=wire,ifname=$2,script=no,downscript=no" -device virtio-net-pci,netdev=wire,romfile= \
    </dev/null >"$SCENARIO_LOGS/qemu.log" 2>&1 &
  GUEST=$!
  GUEST_HOST=$1
  wait_for 90 "the guest to boot" guest_answers
  say "$(guest uname -sr), booted"
}
# The guest with our tool in it: a kernel unpacks one archive after the other.
pack_ours() {
  local root=$WORK/ours library
  need cpio
  mkdir -p "$root/sbin"
  cp "$LINERATE" "$root/sbin/linerate"
  if type -P strip >/dev/null; then strip "$root/sbin/linerate"; fi
  ldd "$LINERATE" | grep -o '/[^ ]*' | while read -r library; do cp --parents -L "$library" "$root"; done
  cat "$VM/initrd"
  (cd "$root" && find . | cpio --quiet -o -H newc)
  rm -rf "$root"
}
guest_answers() {
  kill -0 "$GUEST" || fail "qemu ended: $(tail -n 3 "$SCENARIO_LOGS/qemu.log")"
  grep -qs '^guest: ready' "$SCENARIO_LOGS/console.log" && guest true
}

guest() { # COMMAND... : runs in the guest; its output and its exit status
  local answer
  answer=$(printf '%s\n' "$*" | on "$GUEST_HOST" timeout "${GUEST_TIMEOUT:-240}" nc -N 169.254.77.2 7) || return 125
  [[ $answer == *"exit status "* ]] || return 125
  [[ ${answer%exit status *} == "" ]] || printf '%s' "${answer%exit status *}"
  return "${answer##*exit status }"
}
