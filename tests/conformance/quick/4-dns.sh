# Name servers, by resolvconf.

dns() { # VALUE...
  tunnel 10.9.0.0/16 "${@/#/DNS = }"
  same "DNS: ${*}"
}
dns 10.0.0.1
dns fd00::1
dns "10.0.0.1, fd00::1"
dns "10.0.0.1 ,10.0.0.2,,  fd00::1"
dns "10.0.0.1, example.org, example.net"
dns "example.org, 10.0.0.1"
dns 10.0.0.1 "example.org" fd00::1
dns "10.0.0.1 10.0.0.2"
dns "fd00::1, Example.ORG"
dns fe80::1%lo
dns "10.0.0.1, fe80::1%eth0"
BEFORE='mkdir /etc/resolvconf; printf "%s\n" "# order" "lo.inet*" "tun*" "eth*" >/etc/resolvconf/interface-order'
dns "10.0.0.1, example.org"
BEFORE='mkdir /etc/resolvconf; printf "%s\n" "lo.inet*" "eth[0-9]*" >/etc/resolvconf/interface-order'
dns "10.0.0.2, example.org"
tunnel "0.0.0.0/0" "Address = 10.0.0.2/24" "DNS = 10.0.0.1"
same "DNS: with a full tunnel"
