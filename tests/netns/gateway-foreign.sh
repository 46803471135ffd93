#!/usr/bin/env bash
# timeout: 90
# Firewalls of others that drop what a gateway forwards are found; the command that `up` names makes way, as packets prove.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"

need nft
gateway_hosts
gateway_file "#! Gateway = up0" "#! Masquerade = ipv4"

# What the warnings of the last turn name, an `iptables` as its nft form, for hosts that have no iptables.
named_commands() { grep -oE '`[^`]+`' "$WORK/said" | tr -d '`' | grep -E '^(iptables|ip6tables|nft|ufw|firewall-cmd) '; }
type_in() { # COMMAND... : as iptables-nft would translate it
  local line=$* words
  case $line in
    nft\ *) on h1 bash -c "${line//\"/\\\"}" ;;
    iptables\ -I\ *)
      line=${line/#iptables -I /insert rule ip filter }
      line=${line/ -p udp --dport / udp dport }
      line=${line/ -m conntrack --ctstate RELATED,ESTABLISHED/ ct state related,established}
      line=$(sed -E 's/ -i ([^ ]+)/ iifname "\1"/; s/ -o ([^ ]+)/ oifname "\1"/; s/ -j ACCEPT/ accept/' <<<"$line")
      on h1 nft "$line"
      ;;
    *) fail "a command for another firewall: $line" ;;
  esac
}
mend() { # WHAT : types what was named, until nothing is named any more
  named_commands >"$WORK/commands"
  [[ -s $WORK/commands ]] || fail "$1: no command was named: $(tr '\n' ' ' <"$WORK/said")"
  while read -r line; do
    say "$1: $line"
    type_in "$line"
  done <"$WORK/commands"
}
tried() { # WHAT RULES : these rules of somebody's stop packets, `up` says so, what it names makes way
  say "$1"
  on h1 nft -f - <<<"$2"
  good linerate up wg1
  new_sessions
  no_ping c1 198.18.0.1
  mend "$1"
  new_sessions
  pings c1 198.18.0.1
  pings c2 198.18.0.1
  good linerate down wg1
  is_gone wg1
  good linerate up wg1
  ! named_commands || fail "$1: a command is named although the way is made: $(named_commands)"
  good linerate down wg1
  is_gone wg1
  on h1 nft flush ruleset
}

tried "Docker" '
table ip filter {
  chain INPUT { type filter hook input priority filter; policy accept; }
  chain FORWARD { type filter hook forward priority filter; policy drop;
    counter jump DOCKER-USER
    counter jump DOCKER-FORWARD
  }
  chain DOCKER-USER { counter return; }
  chain DOCKER-FORWARD {
    oifname "docker0" ct state related,established counter accept
    iifname "docker0" oifname != "docker0" counter accept
    iifname "docker0" oifname "docker0" counter accept
  }
}
table ip nat { chain POSTROUTING { type nat hook postrouting priority srcnat; ip saddr 172.17.0.0/16 oifname != "docker0" counter masquerade; }; }'

tried "a firewall of nft's own" '
table inet site {
  chain input { type filter hook input priority filter; policy drop;
    ct state established,related accept
    iifname "lo" accept
    meta l4proto { icmp, ipv6-icmp } accept
    tcp dport 22 accept
  }
  chain forward { type filter hook forward priority filter; policy drop; }
}'

say "ufw"
on h1 nft -f - <<'NFT'
table ip filter {
  chain INPUT { type filter hook input priority filter; policy drop;
    counter jump ufw-before-input
    counter jump ufw-user-input
  }
  chain FORWARD { type filter hook forward priority filter; policy drop;
    counter jump ufw-before-forward
    counter jump ufw-user-forward
  }
  chain ufw-before-input { iifname "lo" counter accept; ct state related,established counter accept; meta l4proto icmp counter accept; }
  chain ufw-before-forward { ct state related,established counter accept; }
  chain ufw-user-input { meta l4proto tcp tcp dport 22 counter accept; }
  chain ufw-user-forward { }
}
NFT
good linerate up wg1
new_sessions
no_ping c1 198.18.0.1
said "what to tell ufw about the way" 'ufw route allow in on wg1 out on up0'
said "what to tell ufw about the port" 'ufw allow 51820/udp'
# What ufw makes of the two.
on h1 nft add rule ip filter ufw-user-input meta l4proto udp udp dport 51820 counter accept
on h1 nft add rule ip filter ufw-user-forward iifname wg1 oifname up0 counter accept
new_sessions
pings c1 198.18.0.1
good linerate down wg1
is_gone wg1
good linerate up wg1
! named_commands || fail "ufw: a command is named although the way is made"
good linerate down wg1
