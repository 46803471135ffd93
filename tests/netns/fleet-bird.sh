#!/usr/bin/env bash
# timeout: 200
# The way back to a fleet's clients by bird, with the configuration that docs/fleet.md has: a client's route follows it from one
# gateway to another.
source "$(dirname "$0")/lib.sh"
need bird birdc

host r g1 g2
ip -n r link add br0 type bridge
ip -n r link set br0 up
address r br0 10.0.0.254/24
for n in 1 2; do
  cable g$n e0 r p$n
  ip -n r link set p$n master br0
  address g$n e0 10.0.0.1$n/24
  # Where linerate-fleet would set routes, to an interface like the tunnel's.
  ip -n g$n link add wg0 type veth peer wg1
  ip -n g$n link set wg0 up && ip -n g$n link set wg1 up
done
client() { ip -n "$1" route "$2" 10.9.0.2/32 dev wg0 table 7100 proto 108; } # GATEWAY add|del

documented=$(sed -n '/^    ipv4 table clients;$/,/^    protocol bgp/s/^    //p' "$REPO/docs/fleet.md")
[[ $documented == *'neighbor 10.0.0.254'* ]] || fail "docs/fleet.md has no configuration of bird any more"
bird_up() { # HOST ADDRESS : with the configuration on standard input
  { echo "router id $2;" && echo 'protocol device { scan time 1; }' && cat; } >"$WORK/$1.conf"
  ip netns exec "$1" bird -f -c "$WORK/$1.conf" -s "$WORK/$1.ctl" >>"$SCENARIO_LOGS/$1.log" 2>&1 &
}
for n in 1 2; do bird_up g$n 10.0.0.1$n <<<"$documented"; done
{
  echo 'protocol kernel { ipv4 { export all; }; }'
  for n in 1 2; do echo "protocol bgp g$n { local as 64512; neighbor 10.0.0.1$n as 64512; direct; connect retry time 1; ipv4 { import all; }; }"; done
} | bird_up r 10.0.0.254

way() { ip -n r route show 10.9.0.2 | grep -o 'via [0-9.]*' || echo none; }
is_way() { [[ $(way) == "$1" ]]; }
client g1 add
wait_for 60 "the router's way to the client" is_way "via 10.0.0.11"
client g2 add
client g1 del
wait_for 60 "the way to follow the client" is_way "via 10.0.0.12"
client g2 del
wait_for 60 "no way to a client that is nowhere" is_way none
