#!/usr/bin/env bash
# timeout: 180
# A supervisor in the background opens ways in firewalls of others for new default routes, with iptables of both kinds and with ufw, and `down` closes them.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"
source "$(dirname "$0")/firewalls.bash"

need nft iptables ip6tables
gateway_hosts
cable h1 up1 inet i1
address h1 up1 203.0.114.1/24
address inet i1 203.0.114.9/24
ip -n h1 -6 route flush default
shows() { grep -q "$1" <<<"$($2)"; }       # WHAT COMMAND
shows_not() { ! grep -q "$1" <<<"$($2)"; } # WHAT COMMAND
has_only() { # PID CAPABILITIES : of the process, and none for programs that it starts
  expected="CapInh 0000000000000000 CapPrm $2 CapEff $2 CapAmb 0000000000000000"
  [[ $(awk -F '[:\t]+' '/^Cap(Inh|Prm|Eff|Amb)/ { printf "%s%s %s", sep, $1, $2; sep = " " }' "/proc/$1/status") == "$expected" ]]
}
over() { ip -n h1 route replace default via "203.0.$2.9" dev "$1"; } # DEVICE NETWORK

follows() { # WHAT MARKS : MARKS shows what is opened
  local what=$1 marks=$2
  say "=== $what"
  over up0 113
  firewalls >"$WORK/firewalls"
  gateway_file "#! Gateway = auto" "#! Masquerade = ipv4" "#! FixFirewall = true"
  good linerate up wg1
  wait_for 30 "$what: its supervisor to be confined" eval '[[ $(awk "/^CapBnd/ { print \$2 }" "/proc/$(supervisor_of wg1)/status") == 0000000000007000 ]]'
  new_sessions
  reaches c1 198.18.0.1
  over up1 114
  wait_for 30 "$what: a way to the other interface" shows up1 "$marks"
  wait_for 10 "$what: no way to the first one" shows_not up0 "$marks"
  reaches c1 198.18.0.1
  good linerate reload wg1
  said "$what: a reload" "nothing has changed"
  gateway_file "#! Gateway = auto" "#! Masquerade = ipv4"
  before=$(supervisor_of wg1)
  good linerate reload wg1
  wait_for 30 "$what: its supervisor to give up what it does not need any more" has_only "$before" 0000000000005000
  expect "$what: the supervisor" "$before" "$(supervisor_of wg1)"
  at h1 "$LINERATE" doctor --security wg1 >"$WORK/doctor" 2>&1 || true
  ! grep -E '^  (capabilities|bounding set) .*fix:' "$WORK/doctor" || fail "$what: the doctor finds its supervisor weak"
  good linerate down wg1
  is_gone wg1
  firewalls_as_before "$what"
  forget_firewalls
}
docker_rules
follows "iptables" 'on h1 iptables -S DOCKER-USER'
if type -P iptables-legacy >/dev/null && on h1 iptables-legacy -S >/dev/null 2>&1; then
  docker_legacy
  follows "iptables of the older kind" 'on h1 iptables-legacy -S DOCKER-USER'
else
  note "the kernel has no iptables of the older kind"
fi

say "=== an option that comes later"
docker_rules
over up0 113
gateway_file "#! Gateway = auto" "#! Masquerade = ipv4"
good linerate up wg1
before=$(supervisor_of wg1)
good linerate reload --fix-firewall wg1
wait_for 30 "another supervisor" eval "[[ \$(supervisor_of wg1) != $before && \$(supervisor_of wg1) =~ ^[0-9]+\$ ]]"
new_sessions
reaches c1 198.18.0.1
over up1 114
wait_for 30 "a way to the other interface" shows up1 'on h1 iptables -S DOCKER-USER'
good linerate down wg1
is_gone wg1
forget_firewalls

say "=== ufw"
type -P ufw >/dev/null || { note "ufw is not installed" && exit 0; }
for folder in /etc/ufw /etc/default; do
  cp -a "$folder" "$WORK/${folder##*/}"
  mount --bind "$WORK/${folder##*/}" "$folder"
done
on h1 ufw --force enable >"$WORK/enabled" 2>&1 || { note "ufw does not work here: $(tail -n 1 "$WORK/enabled")" && exit 0; }
# ufw adds rules of its own to its chains with the first rules of each kind, and leaves them there.
on h1 ufw allow 22/tcp
for rule in "route allow in on wg1 out on up0" "allow 51820/udp"; do
  # shellcheck disable=SC2086 # words
  on h1 ufw $rule
done
on h1 ufw route delete allow in on wg1 out on up0
on h1 ufw delete allow 51820/udp
extra_firewalls() { cat /etc/ufw/user.rules /etc/ufw/user6.rules; }
follows "ufw" 'on h1 ufw status'
