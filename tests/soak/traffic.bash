# The constant traffic of the tunnels: streams of a bounded rate, small datagrams, pings and short connections,
# in both directions, over IPv4 and IPv6. It ends with the sandbox.

LASTING=() # what must not end

traffic() {
  serve h2
  serve h3
  wait_for 5 "the servers" listens h3 5203
  fill_places x 203.0.113.1 wg1
  fill_places x 203.0.113.1 wg3
  fill_places h1 "${AT[e2]}" wg2
  burst 10.9.0.2
  burst 10.8.0.2
  stream 10.9.0.2 5201 -b 20M
  stream fd09::2 5202 -u -b 200k -l 120
  stream fd08::2 5201 -b 10M
  stream 10.8.0.2 5202 -u -b 200k -l 120
  local way
  for way in "${WAYS[@]}"; do steady "${way%%/*}" "${way#*/}"; done
  short_connections 10.9.0.2 fd08::2
}

# A server that has lost its client is ready for the next after some seconds.
serve() { # HOST
  local port
  for port in 5201 5202 5203; do again ip netns exec "$1" iperf3 -s -p $port --idle-timeout 15 --rcv-timeout 10000; done
  again ip netns exec "$1" nc -lk 7001
  again ip netns exec "$1" nc -6 -lk 7002
}
stream() { # ADDRESS PORT [IPERF3 OPTION...] : both ways, a minute at a time
  again ip netns exec h1 timeout 70 \
    iperf3 -c "$1" -p "$2" -t 60 --bidir --pacing-timer 20000 --connect-timeout 3000 "${@:3}"
}
steady() { # HOST ADDRESS
  again ip netns exec "$1" ping -n -q -i 0.1 -W 2 "$2"
}
short_connections() { # IPV4 IPV6
  again ip netns exec h1 bash -c 'for at in "$0 7001" "$1 7002"; do nc -z -w 2 $at; sleep 0.7; done' "$1" "$2"
}

# Everything that there is to send, for some seconds, so that the daemons have used their buffers as far as they will.
burst() { # ADDRESS
  [[ -z $ONCE ]] || return 0 # no verdict on memory
  local options
  for options in "-P 16 --bidir" "-u -b 0 -l 1300" "-u -b 0 -l 1300 -R" "-u -b 0 -l 100" "-u -b 0 -l 100 -R"; do
    # shellcheck disable=SC2086 # several words
    ip netns exec h1 timeout 20 iperf3 -c "$1" -p 5203 -t 1 --connect-timeout 3000 $options >/dev/null || true
  done
}

# Small datagrams and then large ones, while the daemon stands still: a place of a receive buffer becomes resident when
# the kernel first writes to it, and a call asks for many messages only where the one before found small ones. They are
# data of a session that does not exist.
fill_places() { # HOST ADDRESS INTERFACE
  [[ -z $ONCE ]] || return 0
  local size round
  for size in 64 60000; do
    [[ -e $WORK/data$size ]] || for round in {1..200}; do printf '\4\0\0\0' && head -c $((size - 4)) /dev/zero; done >"$WORK/data$size"
  done
  for round in {1..3}; do
    kill -STOP "${DAEMON[$3]}"
    ip netns exec "$1" bash -c 'for size in 64 60000; do dd if="$0$size" bs=$size status=none >/dev/udp/$1/$2; done' \
      "$WORK/data" "$2" "${PORT[$3]}"
    kill -CONT "${DAEMON[$3]}"
    sleep 0.2
  done
}

again() { # COMMAND... : in the background, and once more whenever it ends
  {
    trap - ERR
    while :; do
      "$@" || true
      sleep 0.5
    done
  } </dev/null >/dev/null 2>&1 &
  LASTING+=($!)
}
