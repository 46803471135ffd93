#!/usr/bin/env bash
# timeout: 90
# `up` after a tunnel with a kill switch whose daemon died: the switch holds until the new tunnel is there, or, if that
# fails, on; and it goes when the file has none any more, whoever brought either tunnel up.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"

hosts_with_files
killed_with_switch() { # WHO
  tunnel_file wg1 10.9.0.2/32 "#! KillSwitch = true"
  good "$1" up wg1
  kill_daemon
}
switches() { on h1 nft list tables | grep -c '\(wg-quick\|linerate\)-wg1' || true; }
remember
for old in wg-quick linerate; do
  for who in wg-quick linerate; do
    killed_with_switch $old
    tunnel_file wg1 10.9.0.2/32 "PostUp = ping -n -q -c 1 -w 5 192.168.77.2"
    good $who up wg1
    expect "$old's kill switch, out of the file when $who brings the tunnel up: tables" 0 "$(switches)"
    pings h1 10.9.0.2
    pings h1 192.168.77.2
    good $who down wg1
    is_gone wg1
    as_before "$old's kill switch, out of the file, $who"

    killed_with_switch $old
    good $who up wg1
    expect "$old's kill switch, then $who's: tables" 1 "$(switches)"
    pings h1 10.9.0.2
    no_ping h1 192.168.77.2
    good $who down wg1
    is_gone wg1
    as_before "$old's kill switch, then $who's"

    for line in "PreUp = exit 3" "PostUp = exit 3" $'#! KillSwitch = true\nPostUp = exit 3'; do
      killed_with_switch $old
      tunnel_file wg1 10.9.0.2/32 "$line"
      bad $who up wg1
      expect "$old's kill switch, and $who fails: ${line//$'\n'/, }: tables" 1 "$(switches)"
      no_ping h1 192.168.77.2
      good linerate status
      said "$old's kill switch after $who has failed" "not running .its daemon has died."
      good $who down wg1
      as_before "$old's kill switch, $who fails, down"
    done

    killed_with_switch $old
    tunnel_file wg1 10.9.0.2/32 "FwMark = 77" "#! KillSwitch = true"
    kill_up $who
    tunnel_file wg1 10.9.0.2/32
    good $who up wg1
    expect "$old's kill switch, then $who's of an up that was killed, then none: tables" 0 "$(switches)"
    good $who down wg1
    is_gone wg1
    as_before "$old's kill switch, $who killed, out of the file"

    killed_with_switch $old
    tunnel_file wg1 10.9.0.2/32 "FwMark = 77" "#! KillSwitch = true"
    kill_up $who
    good $who down wg1
    as_before "$old's kill switch, $who killed, down"

    killed_with_switch $old
    tunnel_file wg1 10.9.0.2/32,192.168.77.0/24 "#! RouteConflict = fail"
    bad $who up wg1
    expect "$old's kill switch, and $who refuses to begin: tables" 1 "$(switches)"
    tunnel_file wg1 10.9.0.2/32
    good $who up wg1
    expect "$old's kill switch, and $who begins again: tables" 0 "$(switches)"
    good $who down wg1
    is_gone wg1
    as_before "$old's kill switch, $who refuses to begin, up, down"
  done
done
