#!/usr/bin/env bash
# Makes a sample of PiVPN: its installer with --unattended, then `pivpn` as its users call it. Stand-ins besides those of
# make.bash: git brings the clone, dig tells an address, dpkg-query says that packages are there, whiptail says yes.
source "$(dirname "$0")/make.bash"
for path in /usr/local/src /usr/local/bin /opt /home /root; do mount -t tmpfs tmpfs $path; done
mkdir /home/pi
useradd -M -d /home/pi pi 2>/dev/null || true
chown pi: /home/pi
stand_in git <<GIT
#!/bin/sh
case "\$*" in
  *clone*) mkdir -p /usr/local/src && cp -a "$INSIDE" /usr/local/src/pivpn ;;
esac
exit 0
GIT
mount --bind /run/bin/git /usr/bin/git # it is called by its path
stand_in dig <<<$'#!/bin/sh\necho 198.51.100.7'
stand_in whiptail <<<$'#!/bin/sh\nexit 0' # yes: an older version does not know this system
stand_in dpkg-query <<<$'#!/bin/sh\necho "install ok installed"'
stand_in dpkg <<<$'#!/bin/sh\nexit 0'
stand_in debconf-set-selections <<<$'#!/bin/sh\ncat >/dev/null'
mkdir -p /etc/iptables # as the package iptables-persistent has it
stand_in hostname <<<$'#!/bin/sh\necho raspberry'

# The example of its repository, for this host.
sed 's/^pivpnHOST=.*/pivpnHOST=vpn.example.com/; s/^pivpnforceipv6=0/pivpnforceipv6=1/; s/^UNATTUPG=.*/UNATTUPG=0/' \
  "$INSIDE/examples/unattended_wireguard_example.conf" >/run/options
bash "$INSIDE/auto_install/install.sh" --unattended /run/options --skip-space-check >/run/log 2>&1 </dev/null || { tail -n 20 /run/log && exit 1; }
pivpn() { bash /usr/local/bin/pivpn "$@" >>/run/log 2>&1 </dev/null || { tail -n 20 /run/log && exit 1; }; }
add() { # NAME ADDRESS : older versions choose the address
  if grep -q client-ip "$INSIDE/scripts/wireguard/makeCONF.sh"; then pivpn add -n "$1" -ip "$2"; else pivpn add -n "$1"; fi
}
add alice auto
add bob.laptop auto
add gone auto
add old_phone 10.6.0.77
pivpn off -y old_phone
pivpn remove -y gone

fresh
rmdir "$folder/clients"
cp -r /etc/wireguard/{wg0.conf,configs,keys} /etc/pivpn/wireguard/setupVars.conf "$folder"
# The time of making is the only thing that differs.
sed -i -E 's/^([^ ]+ [^ ]+) [0-9]+/\1 1795860000/' "$folder/configs/clients.txt"
keep_host /etc/iptables/rules.v4 /etc/iptables/rules.v6 /etc/sysctl.d/99-pivpn.conf /etc/pivpn/hosts.wireguard
sed -i '/^#/d' "$folder"/host/etc/iptables/*
chmod -R u=rwX,go=rX "$folder"
