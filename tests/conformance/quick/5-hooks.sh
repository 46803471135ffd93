# The commands of a file: their order, what they see, and what becomes of it when they fail.

tunnel 10.9.0.0/16 "PostUp = echo post %i" "PreDown = echo before" "PostUp = echo again" "PostDown = echo %i after" "PreDown = echo and"
same "hooks: each phase in the order of the file"
tunnel 10.9.0.0/16 "PostUp = echo %i %%i %%%i %I i%" "PostDown = echo '%i'\"%i\"%i"
same "hooks: %i, with no way around it"
tunnel 10.9.0.0/16 'PostUp = echo "$INTERFACE $CONFIG_FILE $LC_ALL"; [[ -n $BASH_VERSION ]] && echo bash'
same "hooks: what they see"
tunnel 10.9.0.0/16 'PostUp = pwd; umask; echo here >made; ls' 'PostDown = pwd; cat made; rm made'
same "hooks: run where wg-quick is run" 'umask 027; quick up wg0; ls -l made | cut -c 1-10 >>"$transcript"; quick down wg0; see ls'
tunnel 10.9.0.0/16 'PostUp = echo out; echo err >&2' 'PostDown = echo out; echo err >&2'
same "hooks: what they say goes where wg-quick's goes"
tunnel 10.9.0.0/16 'PostUp = a=1; cd /; exit 0; false' 'PostUp = echo "<$a>"; pwd'
same "hooks: one leaves nothing to the next"
tunnel 10.9.0.0/16 'PostUp = for i in 1 2 3; do echo $((i * 2)); done | tail -n 1' 'PostUp = echo {a,b} !(c)' 'PostUp = [[ %i == wg* ]] && echo yes'
same "hooks: in the words of bash"
tunnel 10.9.0.0/16 "PostUp = echo '  two  spaces ' \"=\" a=b, ; echo \\\\" 'PostUp =echo tight' 'postup    =   echo wide'
same "hooks: blanks, quotes and signs"
tunnel 10.9.0.0/16 'PostUp = ip -o address show dev %i | grep -o "10.0.0.[0-9/]*"; ip route show dev %i; wg show %i allowed-ips' 'PreDown = ip route show dev %i' 'PostDown = ip link show dev %i >/dev/null 2>&1 || echo gone' "Address = 10.0.0.2/24"
same "hooks: find the tunnel whole, or gone"
tunnel 10.9.0.0/16 'PostUp = ip route add 10.77.0.0/16 dev %i' 'PostUp = wg set %i listen-port 77'
same "hooks: what they change stays"
tunnel 10.9.0.0/16 'PostUp = read -r line; echo "<$line>"'
same "hooks: have the input of wg-quick" 'quick up wg0 <<<hello; quick down wg0'
tunnel 10.9.0.0/16 'PostUp ='
ours "hooks: an empty one is none" 'quick up wg0' <<'END'
$ wg-quick up wg0
err: /etc/wireguard/wg0.conf:3:1: warning: PostUp has no value (add one or remove the line)
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1370 up dev wg0
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
code 0
END
tunnel 10.9.0.0/16 'PostUp = sleep 100 & echo $! >background' 'PostDown = kill $(<background) && echo was there'
same "hooks: one that leaves something behind"
tunnel 10.9.0.0/16 'PostUp = nonsense-that-is-no-program'
alike "hooks: the exit code of a program that is not there" 'quick up wg0; host'
tunnel 10.9.0.0/16 'PostUp = exit 42'
alike "hooks: the exit code of PostUp" 'quick up wg0; host'
tunnel 10.9.0.0/16 'PostUp = kill $BASHPID'
alike "hooks: the exit code of one that is killed" 'quick up wg0; host'
tunnel 10.9.0.0/16 'PostUp = false | true'
alike "hooks: a pipe that fails in its midst" 'quick up wg0; host'
tunnel 10.9.0.0/16 'PostUp = false; echo not reached'
alike "hooks: a command that fails in their midst" 'quick up wg0; host'
tunnel 10.9.0.0/16 'PostUp = (if true'
alike "hooks: what bash does not understand" 'quick up wg0; host'
tunnel 0.0.0.0/0 'PostUp = exit 3' "Address = 10.0.0.2/24" "DNS = 10.0.0.1"
alike "hooks: PostUp fails in a full tunnel" 'quick up wg0; host'
tunnel 10.9.0.0/16 'PostDown = exit 5'
alike "hooks: the tunnel is down though PostDown fails" 'quick up wg0; quick down wg0 >/dev/null; host; see ls /run/wireguard'

# The original evaluates them in its own midst.
tunnel 10.9.0.0/16 'PostUp = echo "<${MTU:-none}>"; type -t add_if || echo nothing of it' 'MTU = 1300'
ours "hooks: see nothing of what wg-quick is made of" 'quick up wg0' <<'END'
$ wg-quick up wg0
out: <none>
out: nothing of it
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1300 up dev wg0
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
err: [#] echo "<${MTU:-none}>"; type -t add_if || echo nothing of it
code 0
END
tunnel 10.9.0.0/16 'PreUp = echo first' 'PreUp = ip link show dev %i >/dev/null && echo there'
ours "hooks: PreUp comes after the interface" 'quick up wg0' <<'END'
$ wg-quick up wg0
out: first
out: there
err: [#] mockd wg0
err: [#] echo first
err: [#] ip link show dev wg0 >/dev/null && echo there
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1370 up dev wg0
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
code 0
END
tunnel 10.9.0.0/16 'PreUp = wg set %i listen-port 777'
ours "hooks: PreUp can set what the file does not" 'quick up wg0; see wg show wg0 listen-port' <<'END'
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] wg set wg0 listen-port 777
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1370 up dev wg0
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
code 0
777
END
tunnel 10.9.0.0/16 'PreUp = exit 7' 'PostDown = echo after'
ours "hooks: PreUp fails" 'quick up wg0; gone wg0; see ls /run/wireguard' <<'END'
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] exit 7
err: [#] ip link delete dev wg0
err: wg-quick: PreUp: exit 7: the command `exit 7` exited with code 7
code 7
END
tunnel 10.9.0.0/16 'PostUp = echo one # two #three'
ours "hooks: a sign of comments belongs to them" 'quick up wg0' <<'END'
$ wg-quick up wg0
out: one
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1370 up dev wg0
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
err: [#] echo one # two #three
code 0
END
tunnel 10.9.0.0/16 'PostUp = exit 4' 'PreDown = echo b' 'PostDown = echo c'
warns "hooks: none for the way down runs when PostUp fails" 'quick up wg0; gone wg0; host; see ls /run/wireguard' <<'END'
err: wg-quick: PostUp: exit 4: the command `exit 4` exited with code 4
END
tunnel 10.9.0.0/16 'PreDown = exit 6' 'PostDown = echo after'
ours "hooks: the tunnel goes down though PreDown fails" 'quick up wg0; quick down wg0; see ls /run/wireguard' <<'END'
$ wg-quick up wg0
err: [#] mockd wg0
err: [#] wg addconf wg0 FILE
err: [#] ip link set mtu 1370 up dev wg0
err: [#] ip -4 route add 10.9.0.0/16 dev wg0
code 0
$ wg-quick down wg0
out: after
err: [#] exit 6
err: PreDown: exit 6: the command `exit 6` exited with code 6
err: [#] ip link delete dev wg0
err: [#] echo after
err: wg-quick: the tunnel is down, but some steps could not be undone; see above
code 6
END
