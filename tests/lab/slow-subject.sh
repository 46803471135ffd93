#!/usr/bin/env bash
# heavy: the lab measures
# timeout: 200
# A subject that is slowed down on purpose is reported as slower, within a run and between two.
source "$(dirname "$0")/lib.sh"

# What else the machine does makes it slower still.
slowed="nice -n 19 env LINERATE_AEAD=portable $TUNNEL_DAEMON -f {iface}"
lab run pair/tcp-1 --rounds 5 --seconds 0.6 --subject "slowed=$slowed" --only linerate,slowed --baseline linerate \
  --output "$FILES/before.json"
fast=$(median "$FILES/before.json" pair/tcp-1 linerate throughput)
slow=$(median "$FILES/before.json" pair/tcp-1 slowed throughput)
expect_at_most "throughput of the slowed one as a share of the other's" 0.8 "$(awk "BEGIN { print $slow / $fast }")"

# Two runs are two times: in between others may begin to use the machine, or end.
compares() {
  lab run pair/tcp-1 --rounds 5 --seconds 0.6 --subject "linerate=$slowed" --only linerate --output "$FILES/after.json"
  "$LINERATE" lab compare "$FILES/before.json" "$FILES/after.json" | tee "$FILES/comparison"
  grep -Eq "linerate +throughput.* worse$" "$FILES/comparison"
}
again() {
  lab run pair/tcp-1 --rounds 5 --seconds 0.6 --only linerate --output "$FILES/before.json"
  compares
}
compares || again || again || fail "the comparison does not call it worse"
