# The words in which the cases of quick/ are written. `run` sources it after lib.sh, inside a sandbox, and then the
# cases.
#
# A case is a script in bash that takes place twice, once with the reference's wg-quick and once with ours, each time on
# a host of its own (host.sh): the same links, routes and files, /etc/wireguard/wg0.conf among them. Compared are the
# transcript of what it does (`quick`, `see`), what the daemon and resolvconf were given, and what became of the host
# (`host`).
#
#   same TITLE [SCRIPT]          they do the same; without SCRIPT: up, and down again
#   alike TITLE [SCRIPT]         they do the same in other words: exit codes, standard output and the host are compared
#   warns TITLE [SCRIPT] <<TEXT  they do the same, and ours says the lines of TEXT besides
#   ours TITLE SCRIPT <<TEXT     the transcript of ours is TEXT
#
# What the host has is set before, and lasts for one case:
#
#   file NAME [MODE] <<TEXT      /etc/wireguard/NAME
#   BEFORE=COMMAND               is run on the host before the script
#
# The installed reference may be older than the version that ours follows. Where only the order or the words of steps
# changed, `in_the_same_words` takes them for the same; where more did, a case is `ours`.

PROGRAM=quick
UP_AND_DOWN='quick up wg0; host; quick down wg0; host'
AT_ONCE=$(($(nproc) + 1))
CASES=$PLACE/cases
queued=0 told=0
mkdir -p "$CASES" "$PLACE/etc" /run/wireguard /run/linerate
rm -rf "$PLACE"/{reference,ours}
for who in reference ours; do mkdir -p "$PLACE/$who/bin"; done
# It puts its own folder first in PATH.
cp "$REFERENCE_QUICK" "$PLACE/reference/bin/wg-quick"
ln -s "$REFERENCE" "$PLACE/reference/bin/wg"
# It turns to a daemon where the kernel has no WireGuard, or its `ip` knows of none.
if ip link add probe type wireguard 2>/dev/null; then
  ip link delete probe
  cat >"$PLACE/reference/bin/ip" <<END
#!/bin/bash
[[ "\$*" == "link add "*" type wireguard" ]] && exit 2
exec $(type -P ip) "\$@"
END
  chmod +x "$PLACE/reference/bin/ip"
fi
ln -s "$LINERATE" "$PLACE/ours/bin/wg-quick"
ln -s "$LINERATE" "$PLACE/ours/bin/wg"
# A daemon that makes the interface, and answers until that is deleted.
cat >"$PLACE/mockd" <<END
#!/bin/bash
ip tuntap add dev "\$1" mode tun || exit
mkfifo "\$SEEN/ready"
"$UAPI_MOCK" "\$SEEN" "\$1" >"\$SEEN/ready" 2>/dev/null </dev/null &
read -r _ <"\$SEEN/ready"
rm "\$SEEN/ready"
(
  while [[ -e /sys/class/net/\$1 ]]; do sleep 0.01; done
  rm -f "/run/wireguard/\$1.sock"
  kill \$!
) >/dev/null 2>&1 </dev/null &
END
# A resolvconf that records its input, and can list it.
cat >"$PLACE/resolvconf" <<'END'
#!/bin/bash
[[ $1 == -l ]] || echo "resolvconf $*" >>"$SEEN/dns"
case $1 in
  -a) tee "$SEEN/dns.$2" >>"$SEEN/dns" ;;
  -d) rm -f "$SEEN/dns.$2" ;;
  -l) cat "$SEEN/dns.$2" ;;
esac
END
chmod +x "$PLACE"/{mockd,resolvconf}
for who in reference ours; do cp "$PLACE/mockd" "$PLACE/resolvconf" "$PLACE/$who/bin"; done
# What a host has of its own.
cat >"$PLACE/fstab" <<END
tmpfs /run/wireguard tmpfs mode=0755 0 0
tmpfs /run/linerate tmpfs mode=0755 0 0
tmpfs $FILES tmpfs mode=0755 0 0
tmpfs /etc tmpfs mode=0755 0 0
END
# What programs want to find in /etc; everything else there is the machine's own affair.
cp -dR --preserve=mode /etc/{passwd,group,nsswitch.conf,services,protocols,ld.so.cache,alternatives,iproute2} "$PLACE/etc" 2>/dev/null
printf '127.0.0.1 localhost\n' >"$PLACE/etc/hosts"
: >"$PLACE/etc/resolv.conf"

file() { # NAME [MODE]
  mkdir -p "$CASES/next/wireguard"
  cat >"$CASES/next/wireguard/$1"
  chmod "${2:-0600}" "$CASES/next/wireguard/$1"
}

# --- the words -------------------------------------------------------------------------------------------------

same() { begin "$1" && queue judge_same "${2:-$UP_AND_DOWN}"; }
alike() { begin "$1" && queue judge_alike "${2:-$UP_AND_DOWN}"; }
warns() { begin "$1" && cat >"$CASES/next/words" && queue judge_warns "${2:-$UP_AND_DOWN}"; }
ours() { begin "$1" && cat >"$CASES/next/words" && queue judge_ours "$2"; }

begin() { # TITLE : false if the case is not wanted
  mkdir -p "$CASES/next/wireguard"
  TITLE=quick/$1
  chosen "$TITLE" && return
  rm -rf "$CASES/next"
  unset BEFORE ENGINE
  false
}
# Cases do not meet each other, so some take place at once. Their verdicts come in the order of the cases.
queue() { # JUDGE SCRIPT
  queued=$((queued + 1))
  CASE=$CASES/$queued
  mv "$CASES/next" "$CASE"
  ("$@" >"$CASE/verdict.new" 2>&1 && mv "$CASE/verdict.new" "$CASE/verdict") &
  unset BEFORE ENGINE
  while (($(jobs -rp | wc -l) >= AT_ONCE)); do wait -n; done
  tell
}
tell() {
  while [[ -e $CASES/$((told + 1))/verdict ]]; do
    told=$((told + 1))
    if [[ $(head -c 2 "$CASES/$told/verdict") == ok ]]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    cat "$CASES/$told/verdict"
    rm -rf "${CASES:?}/$told"
  done
}
finish() { # all that are queued
  wait
  tell
  ((told == queued)) || { echo "FAIL quick/case $((told + 1)) ended without a verdict" && failed=$((failed + 1)); }
}

# --- what becomes of a case ------------------------------------------------------------------------------------

judge_same() { # SCRIPT
  perform_both "$1"
  judge
}
judge_alike() { # SCRIPT
  local who
  perform_both "$1"
  for who in reference ours; do
    sed -i '/^err: /d' "$CASE/$who/transcript"
    rm -f "$CASE/$who/asked"
  done
  judge
}
judge_warns() { # SCRIPT
  local line transcript=$CASE/ours/transcript
  perform_both "$1"
  while read -r line; do
    grep -Fqx -e "$line" "$transcript" || echo "missing: $line" >>"$transcript"
    LINE=$line awk '!gone && $0 == ENVIRON["LINE"] { gone = 1; next } { print }' "$transcript" >"$transcript.new"
    mv "$transcript.new" "$transcript"
  done <"$CASE/words"
  judge
}
judge_ours() { # SCRIPT
  perform ours "$1"
  mkdir "$CASE/reference"
  cp "$CASE/words" "$CASE/reference/transcript"
  rm -f "$CASE"/ours/{asked,dns,host}
  judge
}
judge() {
  # What goes wrong beside the programs is a failure, on either side.
  [[ ! -e $CASE/reference/log ]] || cat "$CASE/reference/log" >>"$CASE/ours/log"
  : >"$CASE/reference/log"
  if diff -ru "$CASE/reference" "$CASE/ours" >"$CASE/difference" 2>&1; then
    echo "ok   $TITLE"
  else
    echo "FAIL $TITLE"
    sed "s|$CASE/||; s/^/       | /" "$CASE/difference"
  fi
}

perform_both() { # SCRIPT
  perform reference "$1" &
  local other=$!
  perform ours "$1"
  wait "$other"
}
perform() { # reference|ours SCRIPT
  local seen=$CASE/$1
  mkdir "$seen"
  unshare --mount --net --pid --fork --kill-child --mount-proc \
    env -i LC_ALL=C PATH="$PLACE/$1/bin:$PATH" PLACE="$PLACE" CASE="$CASE" WHO="$1" SEEN="$seen" \
    LINERATED="$LINERATED" ENGINE="${ENGINE:-mockd}" BEFORE="${BEFORE:-}" \
    timeout 20 bash "$here/host.sh" "$2" </dev/null >"$seen/log" 2>&1
  in_the_same_words "$seen"
  as_far_as_it_is_theirs "$seen"
  rm -f "$seen"/{heard,*.asked,dns.*,out,err}
}

# The kernel detects late whether an interface is held, and whether another host has an IPv6 address; it
# makes the routes of the table `local` for every address itself; and each daemon has its TUN as it likes.
as_far_as_it_is_theirs() { # FOLDER
  [[ -e $1/host ]] || return 0
  sed -E -i -e 's/^\[(\{.*\})\]$/\1/; s/\},\{/}\n{/g' \
    -e 's/"(ifindex|qdisc|operstate|txqlen|address|broadcast|tentative)":("[^"]*"|[0-9]+|true),?//g' \
    -e 's/,?"(NO-CARRIER|LOWER_UP|linkdown)"//g; s/\[,/[/g' "$1/host"
  sed -i '/"dst":.*"table":"local"/d' "$1/host"
}

# What must differ: how the kernel is asked for an interface first, descriptors, the name of the daemon, and its banner;
# and what differs between the versions of the reference: `setconf`, which begins with nothing, and `addconf`, and whether
# the route or the rules of a full tunnel come first.
in_the_same_words() { # FOLDER
  sed -E -e '/^err: Error: Unknown device type\.$/d' -e '/^err: \[#\] ip link add .*type wireguard$/d' \
    -e '/^err: \[!\] Missing WireGuard kernel module/d' -e '/^err: [^ -~]/d' \
    -e 's/\[#\] wg (setconf|addconf) (\S+) .*/[#] wg addconf \2 FILE/' -e 's|/dev/fd/[0-9]+|FILE|' \
    -e 's/\[#\] (\S*\/)?(wireguard-go|linerated) /[#] DAEMON /' "$1/heard" |
    awk '
      / ip -[46] route add .* table [0-9]+$/ { kept = kept $0 "\n"; next }
      kept != "" && / ip -[46] rule add not / { print; next }
      kept != "" { if (/ suppress_prefixlength /) { print; printf "%s", kept; kept = ""; next } printf "%s", kept; kept = "" }
      { print }
      END { printf "%s", kept }' >"$1/transcript"
  ! compgen -G "$1/*.asked" >/dev/null ||
    sed -E '/^(replace_peers=true|replace_allowed_ips=true|(listen_port|fwmark)=0|private_key=0+)$/d' \
      "$1"/*.asked >"$1/asked"
}

# The tunnel of most cases.
KEY=yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
PEER=xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
OTHER=TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=
tunnel() { # ALLOWED-IPS [LINE]... : /etc/wireguard/wg0.conf, with these lines in [Interface]
  file wg0.conf <<END
[Interface]
PrivateKey = $KEY
$(printf '%s\n' "${@:2}")
[Peer]
PublicKey = $PEER
AllowedIPs = $1
Endpoint = 198.51.100.1:51820
END
}
