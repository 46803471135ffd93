#!/usr/bin/env bash
# timeout: 300
# An unprivileged user of a gateway's host impersonates the gateway, from its port, which he binds before the service, and from
# another port. His messages claim that the gateway is alive, has all clients, and has accepted timestamps in the far future.
# The other gateways refuse them, and clients connect and are taken over as usual. The service reports that it cannot bind its
# port, and binds it once he is gone.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
unset LINERATE_USER WG_QUICK_BACKEND
need python3

behind_router
client_host c 100
fleet_up
sleep 4 # a client added earlier might not count as new, and would need a cookie first
client_up phone c wg9
answers_to_c() { on c ping -n -q -c 1 -W 1 10.9.0.1 >/dev/null; }
wait_for 30 "an answer through g1" answers_to_c
wait_for 10 "g2 to know that g1 has the client" is_owner g2 1
mesh=$(gw g1 ip -6 -o addr show dev lm-wg0 scope global | grep -o 'fd[0-9a-f:]*' | head -n 1)
mesh=${mesh%1}
[[ $mesh == fd*:: ]] || fail "no address of the mesh: $mesh"

# As a user of g1, sends heartbeats of g1 and hints with all ones to all gateways: without an envelope, and in one that answers the
# challenge that the other gateway has sent to this port. Sends from port FROM; 0: from each port that gateways have ever used.
user() { # FROM SECONDS
  gw g1 python3 -c '
import os, socket, struct, sys, time
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
mesh, wanted, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
sockets = []
for port in [wanted] if wanted else [341, 51822]:
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind(("::", port))
    s.setblocking(False)
    sockets.append((s, port if not wanted else None))
print("bound by", os.getpid(), flush=True)
ones, start, n, challenges = b"\xff", time.monotonic(), 0, {}
while time.monotonic() - start < seconds:
    n += 1
    for s, port in sockets:
        try:
            while True:
                got = s.recv(9999)
                if got[0] == 2 and len(got) > 67: challenges[got[1]] = got[11:19]
        except OSError: pass
    wall = time.time_ns()
    beat = bytes([1, 1, 0, 3]) + struct.pack("<4Q", n, 2**63, wall, 0)
    hints = bytes([2, 1, 0, 20])
    for number in range(20):
        hints += struct.pack("<IBBH", number, 0, 7, 9) + bytes(10) + b"\xff\xff" + socket.inet_aton("198.51.100.77")
        hints += ones * 12 + ones * 12 + ones * 4 + ones * 8
    for s, port in sockets:
        for gateway in (1, 2, 3):
            for message in (beat, hints):
                header = bytes([2, 0, gateway - 1]) + struct.pack("<2Q", 7, 7) + challenges.get(gateway - 1, bytes(8)) + struct.pack("<Q", n)
                for bytes_ in (message, header + message + os.urandom(32)):
                    for to in [port] if port else [341, 51822]:
                        try: s.sendto(bytes_, (mesh + str(gateway), to))
                        except OSError: pass
    time.sleep(0.05)' "$mesh" "$1" "$2"
}
begins_anew() { # the client begins a new session
  on c wg set wg9 peer "$(public fleet)" remove
  client_set phone c wg9
}
let_in_at() { # NUMBER
  address_is_at "$1"
  begins_anew
  wait_for 20 "the client to be let in by g$1" answers_to_c
}

say "a user has the port of g1"
on g1 sysctl -qw net.ipv4.ip_unprivileged_port_start=0
service_down g1
user 0 600 >"$SCENARIO_LOGS/user.log" 2>&1 &
wait_for 5 "the user to have the port" grep -q bound "$SCENARIO_LOGS/user.log"
service_up g1
wait_for 20 "the mesh of g1" gw g1 ip link show lm-wg0
sleep 3 # he speaks
for n in 2 3; do let_in_at $n; done
wait_for 10 "g1 to say that it cannot have its port" said g1 'cannot open UDP port 341 on lm-wg0: Address already in use'
for n in 2 3; do expect "whether g1 is alive, as g$n sees it" false "$(of_service g$n '.gateway.gateways["0"].is_alive')"; done
expect "whether g1 initiates for others" false "$(of_service g1 .gateway.initiates)"
expect_failure "fleet status on g1" gw g1 "$FLEET" status
gw g1 "$FLEET" status >"$WORK/status" 2>&1 || true
grep -q 'does not hear the others.*sport = :341' "$WORK/status" || fail "fleet status says nothing: $(cat "$WORK/status")"
expect "lines of the log about it" 1 "$(grep -c 'cannot open UDP port' "$SCENARIO_LOGS/g1.log")"

say "he is gone"
kill "$(sed -n 's/^bound by //p' "$SCENARIO_LOGS/user.log")"
for n in 1 2 3; do is_one_of_three $n; done
expect "what troubles g1" null "$(of_service g1 .gateway.trouble)"

say "he sends from a port of his own"
on g1 sysctl -qw net.ipv4.ip_unprivileged_port_start=1024
expect_failure "the port of the service" user 341 1
before=$(counter g2 refused)
user 5555 3 >"$SCENARIO_LOGS/user.log"
has_refused() { (($(counter g2 refused) > before + 100)); }
wait_for 5 "g2 to refuse what he sent" has_refused
grep -q 'a message from \[fd.*:1\]:.* is refused' "$SCENARIO_LOGS/g2.log" || fail "the log of g2 says nothing"
expect_at_most "lines of the log of g2 about it, one a minute" $((SECONDS / 60 + 1)) "$(grep -c 'is refused: ' "$SCENARIO_LOGS/g2.log")"
for n in 1 2 3; do
  sees_all g$n || fail "g$n does not see all gateways"
  let_in_at $n
done

say "he has the port of the mesh's tunnel"
service_down g1
user 51821 600 >"$SCENARIO_LOGS/user.log" 2>&1 &
wait_for 5 "the user to have the port" grep -q bound "$SCENARIO_LOGS/user.log"
service_up g1
says_why() { of_service g1 .gateway.trouble | grep -q '^the mesh of the gateways is down: '; }
wait_for 20 "g1 to say that it has no mesh" says_why
wait_for 5 "g1 to initiate for nobody" is_said g1 .gateway.initiates false
kill "$(sed -n 's/^bound by //p' "$SCENARIO_LOGS/user.log")"
for n in 1 2 3; do is_one_of_three $n; done
expect "what troubles g1" null "$(of_service g1 .gateway.trouble)"

say "a gateway dies"
at=3 next=1
for n in 1 2; do wait_for 10 "g$n to know that g3 has the client" is_owner g$n $at; done
sleep 6 # never two handshakes within 5 s
stream killed
sleep 1
gateway_killed $at
address_is_at $next
had=$(answered)
wait_for 15 "answers after the gateway was killed" answers_again "$((had + 50))"
stream_ends
note "killed: longest silence $GAP ms"
expect_at_most "the longest silence when a gateway is killed, ms" 5000 "$GAP"
