#!/usr/bin/env bash
# timeout: 100
# A name is looked up outside of the tunnel whose endpoint it is; an address that is found later does not loop either.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
own_file /etc/nsswitch.conf <<<"hosts: files dns"
ip -n h1 route add default via 192.0.2.2
address h2 lo 203.0.113.53/32 172.16.1.7/32
count h2 in questions iifname e2 ip daddr 203.0.113.53 udp dport 53
count h2 in answers oifname e2 ip saddr 203.0.113.53
asked() { (($(counted h2 questions) > 0)); }
has_endpoint() { [[ $(endpoint h1 wg1) == 172.16.1.2:50002 ]]; }

say "an allowed IP that contains the endpoint, once its name is known"
address h1 e1 172.16.0.1/16
address h2 e2 172.16.1.2/16
for who in wg-quick linerate; do
  echo "127.0.0.1 localhost" >"$WORK/etc/hosts"
  ENDPOINT=h2.example.com:50002 tunnel_file wg1 172.16.1.0/24,10.9.0.2/32
  : >"$WORK/etc/resolv.conf"
  remember
  good $who up wg1
  echo "172.16.1.2 h2.example.com" >>"$WORK/etc/hosts"
  wait_for 20 "the name to be found" has_endpoint
  wait_for 12 "the tunnel to work" on h1 ping -n -q -c 1 -W 1 172.16.1.7
  good $who down wg1
  is_gone wg1
  as_before "$who down"
done

say "a full tunnel, up before the name server answers"
for line in "" "DNS = 10.9.0.2"; do
  for who in wg-quick linerate; do
    echo "nameserver 203.0.113.53" >"$WORK/etc/resolv.conf"
    ENDPOINT=h2.example.net:50002 tunnel_file wg1 0.0.0.0/0 "$line"
    remember
    good $who up wg1
    # The question of `up` itself was asked before the tunnel was there.
    sleep 1.5
    on h2 nft reset counters >/dev/null
    wait_for 12 "a query to the name server outside the tunnel ($who, $line)" asked
    good $who down wg1
    is_gone wg1
    as_before "$who down"
  done
done

say "with a kill switch no query leaves outside the tunnel, and up says what to do"
echo "nameserver 203.0.113.53" >"$WORK/etc/resolv.conf"
echo "127.0.0.1 localhost" >"$WORK/etc/hosts"
ENDPOINT=h2.example.net:50002 tunnel_file wg1 0.0.0.0/0 "#! KillSwitch = true"
remember
good linerate up wg1
said "up" "h2.example.net:50002: no address yet; KillSwitch blocks the DNS lookup of this endpoint"
on h2 nft reset counters >/dev/null
sleep 3
expect "queries outside the tunnel" 0 "$(counted h2 questions)"
echo "192.0.2.2 h2.example.net" >>"$WORK/etc/hosts"
wait_for 30 "the tunnel to work" on h1 ping -n -q -c 1 -W 1 10.9.0.2
good linerate down wg1
is_gone wg1
as_before "down"
