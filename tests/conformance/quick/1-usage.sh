# Verbs, and how a file is named.

for word in help --help -h; do alike "usage: $word is no failure" "quick $word"; done
alike "usage: nothing" 'quick'
for verb in up down save strip; do
  alike "usage: $verb alone" "quick $verb"
  alike "usage: $verb with too many operands" "quick $verb wg0 wg1"
  same "file: $verb where there is none" "quick $verb wg0"
done
alike "usage: an unknown verb" 'quick frobnicate wg0'
alike "usage: help with an operand" 'quick help wg0'
alike "usage: verbs are case-sensitive" 'quick Up wg0'
alike "usage: no name" 'quick up ""'

tunnel 10.9.0.0/16
same "file: by its path" 'quick up /etc/wireguard/wg0.conf; host; quick down /etc/wireguard/wg0.conf; host'
tunnel 10.9.0.0/16
same "file: by a path from here" 'cp /etc/wireguard/wg0.conf .; quick up ./wg0.conf; quick down ./wg0.conf; cd /etc; quick up wireguard/wg0.conf; quick down wg0'
tunnel 10.9.0.0/16
ours "file: here, by a name that could be that of an interface" 'cp -p /etc/wireguard/wg0.conf .; quick up wg0.conf' <<'END'
$ wg-quick up wg0.conf
err: wg-quick: `/etc/wireguard/wg0.conf.conf' does not exist; did you mean `./wg0.conf'?
code 1
END
tunnel 10.9.0.0/16
same "file: with the name of an interface here is not looked at" 'cp -p /etc/wireguard/wg0.conf wg1; quick up wg1'
tunnel 10.9.0.0/16
same "file: a link names the interface" 'ln -s wg0.conf /etc/wireguard/home.conf; quick up home; host; quick down home; gone home; host'
tunnel 10.9.0.0/16
same "file: a link that leads nowhere" 'ln -s nothing /etc/wireguard/home.conf; quick up home'
tunnel 10.9.0.0/16
same "file: a name with every sign" 'mv /etc/wireguard/{wg0,aZ0_=+.-}.conf; quick up aZ0_=+.-; host; quick down aZ0_=+.-; gone aZ0_=+.-; host'
tunnel 10.9.0.0/16
same "file: a name of 15 characters" 'mv /etc/wireguard/{wg0,abcdefghijklmno}.conf; quick up abcdefghijklmno; host'
for name in abcdefghijklmnop.conf wg,0.conf wg0 wg0.txt .conf 'wg 0.conf'; do
  tunnel 10.9.0.0/16
  same "file: ./$name is not named after an interface" "cp -p /etc/wireguard/wg0.conf './$name'; quick up './$name'; quick strip './$name'"
done
same "file: a folder" 'mkdir /etc/wireguard/wg1.conf; quick strip /etc/wireguard' </dev/null
tunnel 10.9.0.0/16
same "file: a name that does not fit has to be a path" 'quick up abcdefghijklmnop; quick up wg0/'

for mode in 0644 0640 0604 0666 0601; do
  tunnel 10.9.0.0/16
  same "file: mode $mode" "chmod $mode /etc/wireguard/wg0.conf; quick strip wg0; quick up wg0"
done
tunnel 10.9.0.0/16
same "file: mode 0644 in a folder for root" "chmod 0644 /etc/wireguard/wg0.conf; chmod 0700 /etc/wireguard; quick up wg0"
tunnel 10.9.0.0/16
same "file: the mode of what a link leads to counts" 'mkdir -m 700 hidden; mv /etc/wireguard/wg0.conf hidden; chmod 644 hidden/wg0.conf; ln -s "$PWD/hidden/wg0.conf" /etc/wireguard; quick strip wg0'

# As somebody else than root: asks sudo, where there is one.
if ((EUID == 0)) && setpriv --reuid 65534 --clear-groups test -x "$LINERATE" 2>/dev/null; then
  for verb in up down save strip; do
    alike "root: $verb as an ordinary user without sudo" "as_nobody $verb wg0"
  done
  same "root: sudo is asked with the same words" 'printf "%s\n" "#!/bin/bash" "echo \"\$1 \$2 \$3\"; echo \"\${@: -2}\"" >sudo; chmod +x sudo; as_nobody up wg0'
else
  skip_quick "an ordinary user: needs root, and a linerate that everybody may run"
fi
