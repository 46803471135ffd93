#!/usr/bin/env bash
# timeout: 60
# Clients of a gateway reach neither cloud metadata services (169.254.169.254 and others) nor other link-local addresses
# behind it, unless their `Destinations` name the address.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/gateway.bash"

need nft python3
METADATA=(169.254.169.254 169.254.7.7 168.63.129.16 100.100.100.200 fd00:ec2::254 fd20:ce::254)
gateway_hosts
for address in "${METADATA[@]}"; do
  if [[ $address == *:* ]]; then ip -n inet addr add "$address/128" dev lo nodad; else ip -n inet addr add "$address/32" dev lo; fi
done
ip netns exec inet python3 -c '
import socketserver
class Secret(socketserver.BaseRequestHandler):
    def handle(self): self.request.sendall(b"secret")
class Server(socketserver.ThreadingTCPServer): address_family, request_queue_size = 10, 64
Server(("::", 80), Secret).serve_forever()' &
wait_for 5 "the cloud" listens inet 80
# Checks which of these addresses give a host their secret. It asks all at once, and retries for some seconds.
fetches() { # WHAT HOST EXPECTED-ADDRESSES
  local found
  found=$(on "$2" python3 -c '
import selectors, socket, sys, time
expected, addresses = sys.argv[1].split(), sys.argv[2].split()
waiting, found, until = selectors.DefaultSelector(), set(), time.monotonic() + 10
for address in addresses:
    asked = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    asked.setblocking(False)
    asked.connect_ex((address, 80))
    waiting.register(asked, selectors.EVENT_READ, address)
def take(seconds):
    for key, _ in waiting.select(seconds):
        waiting.unregister(key.fileobj)
        try:
            found.update([key.data] if key.fileobj.recv(6) == b"secret" else [])
        except OSError:
            pass
while not found.issuperset(expected) and time.monotonic() < until:
    take(0.1)
until = time.monotonic() + 0.3
while (left := until - time.monotonic()) > 0:
    take(left)
print(*(address for address in addresses if address in found))' "$3" "${METADATA[*]} $PUBLIC")
  expect "$1: what $2 fetches" "$3" "$found"
}
PUBLIC="198.18.0.1 2001:db8:18::1"
refuses_all() { # WHAT
  fetches "$1" c1 "$PUBLIC"
  fetches "$1" c2 "$PUBLIC"
  fetches "$1" h1 "${METADATA[*]} $PUBLIC"
}

for who in linerate wg-quick; do
  PEER_LINE[c1]=
  gateway_file "#! Gateway = auto" "#! Masquerade = both"
  good $who up wg1
  new_sessions
  pings c1 198.18.0.1
  pings c2 198.18.0.1
  refuses_all "$who"

  say "$who: Destinations that name metadata services"
  PEER_LINE[c1]="#! Destinations = 169.254.169.254/32, fd00:ec2::254, 198.18.0.1/32"
  gateway_file "#! Gateway = auto" "#! Masquerade = both"
  good linerate reload wg1
  fetches "$who: named" c1 "169.254.169.254 fd00:ec2::254 198.18.0.1"
  fetches "$who: named for another" c2 "$PUBLIC"

  say "$who: without masquerading, and with Inbound = all"
  PEER_LINE[c1]=
  gateway_file "#! Gateway = up0" "#! Inbound = all"
  routes_back
  good linerate reload wg1
  refuses_all "$who: routed"
  no_routes_back
  good $who down wg1
  is_gone wg1
done
