"""Random histories of a host with a hostile network, each replayed by its seed: see hostile-histories.sh.

    hostile-histories.py FIRST-SEED COUNT [STEPS]

A history is about a client with a kill switch in a café (h1; h2 watches its link) or about a gateway (g1; inet, other and
lan watch its links, c1 and c2 are its clients). After each event all neighbours and programs send packets of every kind,
and each packet that arrives is checked against these laws:

    L1  while its kill switch is in force, h1 sends only the tunnel's datagrams, DHCP, neighbour discovery, and packets to
        destinations that its file excludes
    L2  g1 forwards only between the tunnel and its uplinks
    L3  packets from and to a client obey `Inbound`, `ClientIsolation` and `Destinations`, and no client reaches a metadata
        service that `Destinations` does not name
    L4  g1 drops packets from outside with a client's address
"""

import contextlib
import ctypes
import functools
import ipaddress
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import neighbour as says

libc = ctypes.CDLL(None, use_errno=True)
HOME = os.open("/proc/self/ns/net", os.O_RDONLY)
LINERATE, WORK = os.environ["LINERATE"], os.environ["WORK"]
PRIVATE = [ipaddress.ip_network(text) for text in
           ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10")]
EVERYWHERE = [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]
MARK = b"HOSTILE"
NAME = "vpn.example.com"  # of an endpoint; h2 is the name server, and answers with Client.claimed


@contextlib.contextmanager
def inside(host):
    """Enters the host's network namespace: sockets and programs that start here belong to it."""
    with open(f"/run/netns/{host}") as there:
        enter(there.fileno())
    try:
        yield
    finally:
        enter(HOME)


def enter(namespace):
    if libc.setns(namespace, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def run(host, *words, text=None):
    with inside(host):
        done = subprocess.run(words, input=text, text=True, stdin=None if text else subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    said.write(f"--- {host}: {' '.join(words[-4:])}: {done.returncode}\n{done.stdout}")
    return done.returncode == 0


said = open(f"{os.environ['SCENARIO_LOGS']}/said.log", "a", buffering=1)


def configure(host, lines):
    """Runs lines of `ip`, those with -6 last, and ignores failures."""
    for family in ("-4", "-6"):
        chosen = [line.removeprefix(family + " ") for line in lines if line.startswith("-6") == (family == "-6")]
        if chosen:
            run(host, "ip", *(["-6"] if family == "-6" else []), "-force", "-batch", "-", text="\n".join(chosen) + "\n")


def fresh(device):
    """Lines that remove all state from a link. It stays up, because the kernel is slow to detect a carrier."""
    return [f"addr flush dev {device}", f"route flush dev {device}", f"-6 route flush dev {device}", f"neigh flush dev {device}",
            f"-6 route add multicast ff00::/8 dev {device} table local metric 256"]


def wait_for_link(host, device):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with inside(host), open("/proc/self/net/if_inet6") as file:
            if any(line.startswith("fe80") and line.split()[5] == device for line in file):
                return
        time.sleep(0.002)


def set_sysctl(host, name, value):
    with inside(host), contextlib.suppress(OSError), open("/proc/sys/" + name.replace(".", "/"), "w") as file:
        file.write(str(value))


def contains(networks, address):
    return any(address in net for net in networks)


def networks(texts):
    return [ipaddress.ip_network(text) for text in texts]


class Packet:
    """The parts of an IP packet that the laws depend on. Fragments have the ports of the first one."""

    firsts = {}

    def __init__(self, data):
        datagram = None
        if data[0] >> 4 == 4:
            start, self.protocol, ends = (data[0] & 15) * 4, data[9], (data[12:16], data[16:20])
            datagram = (data[4:6], data[9:10], data[12:20]) if data[6] & 0x3F or data[7] else None
        else:
            start, self.protocol, ends = 40, data[6], (data[8:24], data[24:40])
        self.source, self.to = map(ipaddress.ip_address, ends)
        self.payload = data[start:]
        self.ports = struct.unpack("!HH", self.payload[:4]) if self.protocol in (6, 17) and len(self.payload) >= 4 else (0, 0)
        if datagram and data[6] & 0x1F == data[7] == 0:
            self.firsts[datagram] = self.ports
        elif datagram:
            self.ports = self.firsts.get(datagram, (0, 0))

    def __str__(self):
        what = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6"}.get(self.protocol, self.protocol)
        ports = f" ports {self.ports[0]} to {self.ports[1]}" if self.protocol in (6, 17) else f" type {self.payload[0]}"
        return f"{what} {self.source} to {self.to}{ports}"


class Link:
    """One end of a cable, or a client's end of the tunnel. `judge` sees each packet that arrives; `send` sends to the other end."""

    def __init__(self, name, host, device, facing=None):
        self.name, self.judge, self.dhcp = name, None, None
        with inside(host):
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self.raw.bind((device, 0))
        self.raw.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        self.own = self.raw.getsockname()[4]
        self.is_tunnel = facing is None
        if facing:
            with inside(facing[0]), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as there:
                there.bind((facing[1], 0))
                self.victim = there.getsockname()[4]

    def take(self):
        data, address = self.raw.recvfrom(65536)
        if address[2] == socket.PACKET_OUTGOING or len(data) < 20:
            return
        if not self.is_tunnel:
            if len(data) >= 42:
                reply = says.answer(self.own, data, EVERYWHERE)
                if reply is None and self.dhcp:
                    reply = says.dhcp_answer(self.own, data, **self.dhcp)
                if reply:
                    self.send_frame(reply)
            if data[12:14] not in (b"\x08\x00", b"\x86\xdd"):
                return
            data = data[14:]
        if self.judge:
            self.judge(self.name, Packet(data))

    def send(self, packet):
        self.send_frame(says.frame(self.victim, self.own, packet))

    def send_frame(self, frame):
        with contextlib.suppress(OSError):  # the link may be down
            self.raw.send(frame)


class Watch(threading.Thread):
    """Reads packets from all links, in the background."""

    def __init__(self, links):
        super().__init__(daemon=True)
        self.links = {link.raw.fileno(): link for link in links}
        self.asked, self.ask = os.pipe()
        self.answered, self.answer = os.pipe()
        self.start()

    def run(self):
        poll = select.poll()
        for descriptor in [*self.links, self.asked]:
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            for descriptor in ready:
                if descriptor != self.asked:
                    with contextlib.suppress(OSError):  # a link that is gone or down reports one error
                        self.links[descriptor].take()
            if ready == [self.asked]:
                os.write(self.answer, os.read(self.asked, 1))

    def drain(self):
        """Returns once all packets that have arrived are judged, including those that waited for an ARP reply."""
        for _ in range(2):
            time.sleep(0.002)
            os.write(self.ask, b"x")
            os.read(self.answered, 1)


class History:
    def __init__(self, rng, watch, links):
        self.rng, self.watch, self.links = rng, watch, links
        self.violations, self.state, self.is_changing = [], "down", False
        self.meanwhile = random.Random(rng.random())  # a storm draws a number of values that depends on time
        for link in links.values():
            link.judge, link.dhcp = None, None

    def chance(self, one_in):
        return self.rng.randrange(one_in) == 0

    def settings(self):
        """Draws settings for the tunnel's file. While a file changes, packets may obey the old or the new settings."""
        raise NotImplementedError

    def tool(self, *words, during=None):
        """Runs linerate, and calls `during` repeatedly until it ends."""
        with inside(self.host):
            process = subprocess.Popen([LINERATE, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        while during and process.poll() is None:
            during()
        status = process.wait()
        self.watch.drain()
        said.write(f"--- {' '.join(words)}: {status}\n")
        return status == 0

    def kill_daemon(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                words = open(f"/proc/{pid}/cmdline").read().split("\0")
                if words[0].endswith("linerated") and words[-2] == self.interface:
                    os.kill(int(pid), signal.SIGKILL)
        until = time.monotonic() + 20
        while self.has_link():
            if time.monotonic() > until:
                sys.exit(f"{self.interface} does not go")
            time.sleep(0.002)

    def has_link(self):
        with inside(self.host):
            return self.interface in (name for _, name in socket.if_nameindex())

    # Events of both kinds. `valid` has the old and the new settings until an event is over.

    def up(self):
        self.next = self.settings()
        self.write(self.next)
        words = self.rng.choice((("up",), ("wg-quick", "up")))
        yield f"{' '.join(words)} of {self.next}"
        self.valid, self.is_changing = [*self.valid, self.next], True
        came_up = self.tool(*words, self.interface, during=self.storm)
        self.is_changing = False
        if came_up:
            self.valid, self.state = [self.next], "up"
            self.came_up()
        else:
            counts["ups that failed"] += 1
            self.valid = []
            self.tool("down", self.interface)
            self.state = "down"

    def down(self):
        yield "down"
        self.is_changing = True
        self.tool("down", self.interface, during=self.storm if self.storms_down else None)
        self.is_changing = False
        self.valid, self.state = [], "down"

    def reload(self):
        self.next = self.settings()
        self.write(self.next)
        yield f"reload of {self.next}"
        self.valid = [*self.valid, self.next]
        if self.tool("reload", self.interface, during=self.storm):
            self.valid = [self.next]
            self.reloaded()
        else:
            counts["reloads that failed"] += 1

    def reloaded(self):
        pass

    def reload_same(self):
        yield "reload"
        self.tool("reload", self.interface, during=self.storm)

    def kill(self):
        yield "kill -9 of the daemon"
        self.kill_daemon()
        self.state = "dead"

    def events(self):
        """Returns the possible events, each repeated by its weight."""
        of_state = {
            "down": [self.up] * 8,
            "up": [self.reload] * 3 + [self.reload_same, self.down] + [self.kill] * 2,
            "dead": [self.up] * 2 + [self.down],
        }
        return of_state[self.state] + self.hostile()

    def violate(self, text):
        self.violations.append(text)

    def end(self):
        if self.state != "down":
            for link in self.links.values():
                link.judge = None
            self.valid = []
            self.tool("down", self.interface)


def ra_arguments(rng, own_routes):
    """Draws the contents of a router advertisement."""
    prefixes = ("::/0", "2000::/3", "2000::/4", "fc00::/6", "f000::/4", "8000::/1", "::/1", "2001:db8::/32", "2001:db8:7::/64",
                "2001:db8:7::7/128", "fd00::/8", "fd01::/64", "fd09::/64", "2001:db8:66::/64", "64:ff9b::/96")
    chosen = {"lifetime": rng.choice((0, 0, 65535, 1800))}
    chosen["prefix"] = rng.sample(prefixes, rng.randrange(3))
    if rng.randrange(3) == 0:
        chosen["slaac"] = ["2001:db8:66::/64"]
    if own_routes and rng.randrange(2):
        chosen["route"] = rng.sample(prefixes, rng.randrange(1, 3))
    if rng.randrange(3) == 0:
        chosen["mtu"] = rng.choice((68, 1280, 65535))
    if rng.randrange(4) == 0:
        chosen["rdnss"] = ["2001:db8:66::53"]
    if rng.randrange(2):
        chosen["preference"] = "high"
    return chosen


# --- a client in a café -------------------------------------------------------------------------------------------------


class Client(History):
    host, interface, storms_down = "h1", "wg1", False
    PUBLIC = ("203.0.113.7", "8.8.8.8", "192.0.5.7", "11.0.0.7", "2001:db8:7::7", "3fff::7")
    LOCAL = ("192.168.1.1", "192.168.1.9", "10.1.2.3", "fd01::1", "fd77::9")
    # Addresses that the name server gives for the endpoint: true, false, or forbidden as a destination of datagrams.
    ENDPOINTS = ("203.0.113.2", "203.0.113.7", "8.8.8.8", "192.168.1.9", "2001:db8:7::7", "10.9.0.1", "10.9.0.2", "127.0.0.1",
                 "0.0.0.0", "255.255.255.255", "224.0.0.1", "fe80::1", "::1")
    claimed = {"203.0.113.2"}  # since the history began, so that an earlier answer is still an endpoint

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.lie("203.0.113.2")
        Client.claimed = {"203.0.113.2"}
        self.link, self.valid, self.can_lease = self.links["h2"], [], True
        configure("h1", ["link set e1 mtu 1500", *fresh("e1")])
        configure("h1", [
            "addr add 192.168.1.5/24 dev e1", "addr add fd01::5/64 dev e1 nodad", "addr add fe80::5/64 dev e1 nodad",
            "route replace default via 192.168.1.1", "-6 route replace default via fe80::1 dev e1",
        ])
        set_sysctl("h1", "net.ipv6.conf.e1.mtu", 1500)
        self.link.judge = self.judge

    def settings(self):
        rng = self.rng
        return {
            "AllowedIPs": rng.choice(("0.0.0.0/0, ::/0",) * 3 + ("0.0.0.0/1, 128.0.0.0/1, ::/1, 8000::/1", "10.9.0.0/24, fd09::/64")),
            "ExcludeLAN": rng.choice(("true", "true", "auto", "false")),
            "ExcludedIPs": rng.choice(([], [], ["198.51.100.0/24"], ["192.168.1.1/32", "fd01::1/128"], ["2001:db8:5::/48"])),
            "DNS": rng.choice(([], [], [], ["192.168.1.1"], ["10.9.0.2"])),
            "Endpoint": rng.choice(("203.0.113.2", "203.0.113.2", NAME)),
        }

    def write(self, settings):
        key, other = (open(f"{WORK}/{name}").read().strip() for name in ("h1.key", "h2.pub"))
        lines = ["[Interface]", f"PrivateKey = {key}", "Address = 10.9.0.1/24, fd09::1/64", "#! KillSwitch = true",
                 f"#! ExcludeLAN = {settings['ExcludeLAN']}"]
        if settings["ExcludedIPs"]:
            lines.append(f"#! ExcludedIPs = {', '.join(settings['ExcludedIPs'])}")
        if settings["DNS"]:
            lines.append(f"DNS = {', '.join(settings['DNS'])}")
        lines += ["[Peer]", f"PublicKey = {other}", f"Endpoint = {settings['Endpoint']}:50002", f"AllowedIPs = {settings['AllowedIPs']}", ""]
        with open("/etc/wireguard/wg1.conf", "w") as file:
            file.write("\n".join(lines))

    def came_up(self):
        """Waits for the look-up of the endpoint, if the file lets a query leave for the name server."""
        asked = self.next["DNS"] + self.next["ExcludedIPs"]
        if self.next["Endpoint"] != NAME or not any(net.startswith("192.168.1.1") for net in asked):
            return
        until = time.monotonic() + 1
        while time.monotonic() < until:
            with inside("h1"):
                if "(none)" not in subprocess.run(["wg", "show", "wg1", "endpoints"], capture_output=True, text=True, check=False).stdout:
                    counts["look-ups"] += 1
                    return
            time.sleep(0.01)
        counts["look-ups without an answer"] += 1

    reloaded = came_up

    def storm(self):
        # Before `up` there is no kill switch to test.
        if self.state != "down":
            self.programs(self.meanwhile.sample(self.PUBLIC, 2) + self.meanwhile.sample(self.LOCAL, 2))
        self.link.send(says.advertisement(self.link.own, prefix=["2000::/3"]))

    def programs(self, addresses):
        says.kept.clear()
        with inside("h1"):
            says.programs("e1", addresses)

    def check(self):
        if self.state != "down":
            self.programs(self.PUBLIC + self.LOCAL)

    def end(self):
        says.kept.clear()
        super().end()

    def down(self):
        # Packets that leave from here on are not judged.
        self.watch.drain()
        self.link.judge = None
        yield from super().down()
        says.kept.clear()
        self.watch.drain()
        self.link.judge = self.judge

    def judge(self, _, packet):
        if self.state == "down" or not self.valid:
            return
        if not any(self.may_leave(packet, settings) for settings in self.valid):
            self.violate(f"L1: {packet} left h1")
        elif packet.ports[1] == 50002:
            counts["the tunnel's own" if str(packet.to) == "203.0.113.2" else "the tunnel's own to a false endpoint"] += 1
        else:
            counts["excluded packets"] += 1

    @staticmethod
    def may_leave(packet, settings):
        if packet.protocol == 17 and (packet.ports in ((68, 67), (546, 547)) or (packet.ports[1] == 50002 and str(packet.to) in Client.claimed)):
            return True
        if packet.protocol == 58 and packet.payload[0] in (133, 135, 136):
            return True
        if contains(networks(settings["ExcludedIPs"]), packet.to):
            return True
        if settings["ExcludeLAN"] == "false" or not contains(PRIVATE, packet.to):
            return False
        is_question = packet.protocol in (6, 17) and packet.ports[1] in (53, 853)
        return not is_question or str(packet.to) in settings["DNS"]

    def hostile(self):
        return [self.ra] * 4 + [self.lease] * 2 * self.can_lease + [self.name, self.claim, self.redirect, self.too_big, self.spoof, self.mtu]

    def ra(self):
        chosen = ra_arguments(self.rng, True)
        yield f"advertisement {chosen}"
        source = self.rng.choice((says.ROUTER, "fe80::1"))
        self.link.send(says.advertisement(self.link.own, source=source, **chosen))

    def lease(self):
        rng = self.rng
        length = rng.choice((1, 2, 7, 8, 16, 24, 32))
        host = rng.choice(("192.168.1.5", "192.168.1.5", "10.0.0.5", "172.16.0.5", "203.0.113.50", "100.64.0.5"))
        routes = [f"{net},{rng.choice(('0.0.0.0', '192.168.1.1'))}" for net in
                  rng.sample(("0.0.0.0/1", "128.0.0.0/1", "128.0.0.0/2", "203.0.113.0/24", "8.0.0.0/6", "10.0.0.0/8", "0.0.0.0/0", "203.0.113.2/32"), rng.randrange(4))]
        offered = {"address": f"{host}/{length}", "server": "192.168.1.1", "router": ["192.168.1.1"], "route": routes,
                   "dns": [rng.choice(("192.168.1.1", "8.8.8.8"))]}
        if self.chance(3):
            offered["mtu"] = rng.choice((576, 1280, 1500))
        yield f"DHCP answer {offered}"
        self.link.dhcp = offered
        if not run("h1", "timeout", "5", "busybox", "udhcpc", "-i", "e1", "-s", f"{WORK}/dhcp", "-O", "staticroutes", "-O", "mtu", "-q", "-n", "-f", "-t", "3", "-T", "1"):
            counts["leases that failed"] += 1

    def name(self):
        address = self.rng.choice(self.ENDPOINTS)
        yield f"{NAME} is {address}"
        self.lie(address)

    @staticmethod
    def lie(address):
        Client.claimed.add(address)
        with open(f"{WORK}/names", "w") as file:
            file.write(address)

    def claim(self):
        address = self.rng.choice(("192.168.1.1", "203.0.113.2", "fe80::1", "fd01::1", "10.9.0.2"))
        yield f"claim of {address}"
        self.link.send_frame(says.claim(self.link.victim, self.link.own, address))

    def redirect(self):
        ends = self.rng.choice((("192.168.1.1", "192.168.1.5", "203.0.113.7", "192.168.1.66"), ("fe80::1", "fd01::5", "2001:db8:7::7", "fe80::66"),
                                ("192.168.1.1", "192.168.1.5", "203.0.113.2", "192.168.1.66")))
        yield "redirect by {} of {} for {} to {}".format(*ends)
        self.link.send(says.redirect(self.link.own, *ends))

    def too_big(self):
        mtu = self.rng.choice((0, 1, 68, 552, 1279, 1280, 65535))
        ends = self.rng.choice((("192.168.1.1", "192.168.1.5", "203.0.113.2"), ("fe80::1", "fd01::5", "2001:db8:7::7"), ("192.168.1.1", "192.168.1.5", "203.0.113.7")))
        yield f"too big for {mtu} by {ends[0]} about {ends[2]}"
        self.link.send(says.too_big(*ends, 7777, 50002, mtu))

    def spoof(self):
        source, to = self.rng.choice((("203.0.113.7", "10.9.0.1"), ("10.9.0.2", "10.9.0.1"), ("203.0.113.7", "192.168.1.5"), ("2001:db8:7::7", "fd09::1"),
                                      ("2001:db8:7::7", "fd01::5"), ("10.9.0.2", "192.168.1.5")))
        yield f"datagram and echo request of {source} to {to}"
        self.link.send(says.udp(source, to, 53, 40000))
        self.link.send(says.echo(source, to))

    def mtu(self):
        mtu = self.rng.choice((68, 576, 1280, 9000))
        yield f"MTU {mtu}"
        self.can_lease = mtu > 576
        configure("h1", [f"link set e1 mtu {mtu}"])


# --- a gateway ----------------------------------------------------------------------------------------------------------


class Gateway(History):
    host, interface, storms_down = "g1", "wg0", True
    SIDES = ("inet", "other", "lan")
    OF_SIDE = {"inet": ("198.51.100.2", "2001:db8:3::2"), "other": ("198.18.5.1", "2001:db8:5::1"), "lan": ("192.168.77.2", "fd77::2")}
    OWN = {"inet": ("203.0.113.5", "2001:db8:1::5"), "other": ("198.18.5.5", "2001:db8:5::5"), "lan": ("192.168.77.1", "fd77::1")}
    C1, C2, SELF = ("10.9.0.2", "fd09::2"), ("10.9.0.3", "fd09::3"), ("10.9.0.1", "fd09::1")
    ACCOMPLICE = ("198.51.100.7", "2001:db8:3::7")
    METADATA = (("169.254.169.254", "168.63.129.16", "100.100.100.200", "169.254.7.7"), ("fd00:ec2::254", "fd20:ce::254"))
    number = 0  # of the latest probe, counted over all histories

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.probes, self.valid, self.has_session = {}, [], False
        self.router = self.chance(4)  # the administrator forwards for lan
        self.uplinks = {"inet"}
        configure("g1", [*fresh("e1"), *fresh("e5"), *fresh("lan1")])
        configure("g1", [
            "addr add 203.0.113.5/24 dev e1", "addr add 2001:db8:1::5/64 dev e1 nodad", "addr add fe80::11/64 dev e1 nodad",
            "addr add 198.18.5.5/24 dev e5", "addr add 2001:db8:5::5/64 dev e5 nodad", "addr add fe80::15/64 dev e5 nodad",
            "addr add 192.168.77.1/24 dev lan1", "addr add fd77::1/64 dev lan1 nodad", "addr add fe80::17/64 dev lan1 nodad",
            "route add 192.0.2.0/24 via 203.0.113.1", "route add 192.0.3.0/24 via 203.0.113.1",
            "route add default via 203.0.113.1", "-6 route add default via 2001:db8:1::1",
        ])
        set_sysctl("g1", "net.ipv4.conf.lan1.forwarding", int(self.router))
        set_sysctl("g1", "net.ipv6.conf.lan1.force_forwarding", int(self.router))
        for device in ("all", "e1", "e5", "lan1"):
            set_sysctl("g1", f"net.ipv4.conf.{device}.rp_filter", 0)
        for link in self.links.values():
            link.judge = self.judge

    def settings(self):
        rng = self.rng
        return {
            "Gateway": rng.choice(("auto", "auto", "e1")), "Masquerade": rng.choice(("both", "both", "ipv4", "off")),
            "Inbound": rng.choice(("replies", "replies", "all")), "ClientIsolation": rng.choice((True, False)),
            "Destinations": rng.choice(([], [], ["198.51.100.2/32", "2001:db8:3::2/128"], ["169.254.169.254/32", "fd09::3/128", "10.9.0.3/32"])),
        }

    def write(self, settings):
        lines = ["[Interface]", f"PrivateKey = {open(f'{WORK}/g1.key').read().strip()}", "Address = 10.9.0.1/24, fd09::1/64", "ListenPort = 51820"]
        lines += [f"#! {name} = {str(settings[name]).lower()}" for name in ("Gateway", "Masquerade", "Inbound", "ClientIsolation")]
        for number, name in ((2, "c1"), (3, "c2")):
            lines += ["[Peer]", f"PublicKey = {open(f'{WORK}/{name}.pub').read().strip()}", f"AllowedIPs = 10.9.0.{number}/32, fd09::{number}/128"]
            if settings["Destinations"] and name == "c1":
                lines.append(f"#! Destinations = {', '.join(settings['Destinations'])}")
        with open("/etc/wireguard/wg0.conf", "w") as file:
            file.write("\n".join(lines) + "\n")

    def came_up(self):
        """Has the clients begin new sessions, since the gateway has a new daemon."""
        key = open(f"{WORK}/g1.pub").read().strip()
        for name, interface in (("c1", "wg3"), ("c2", "wg4")):
            run(name, "wg", "set", interface, "peer", key, "remove")
            run(name, "wg", "set", interface, "peer", key, "endpoint", "203.0.113.5:51820", "allowed-ips", "0.0.0.0/0,::/0")
        self.has_session = all(self.reaches_gateway(client) for client in ("c1", "c2"))
        counts["sessions" if self.has_session else "sessions that were not made"] += 1

    def reaches_gateway(self, client):
        """Whether the gateway answers a client. The reply also shows that the client's earlier packets have arrived."""
        with inside(client), socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) as asked:
            asked.settimeout(1)
            self.pings = getattr(self, "pings", 0) + 1
            head = struct.pack("!BBHHH", 8, 0, 0, os.getpid() & 0xFFFF, self.pings)
            with contextlib.suppress(OSError):
                asked.sendto(head[:2] + struct.pack("!H", says.checksum(head)) + head[4:], ("10.9.0.1", 0))
                while True:
                    found = asked.recv(200)[20:]
                    if found[0] == 0 and found[4:8] == head[4:8]:
                        return True
        return False

    # --- probes, and the sinks where they may arrive

    def mark(self, law, what, sinks):
        """Returns the payload of a probe. It may arrive at the `sinks` of the time it is sent or of the time it arrives."""
        Gateway.number += 1
        self.probes[Gateway.number] = (law, what, sinks, sinks())
        return MARK + struct.pack("!I", Gateway.number)

    def ports(self):
        """Returns a pair of ports that no probe has used, so that none belongs to another's connection."""
        return 10000 + Gateway.number % 50000, 4000 + Gateway.number // 50000

    def from_side(self, law, side, source, to, sinks=set, ports=None):
        text = self.mark(law, f"{source} to {to}, sent by {side}", sinks)
        self.links[side].send(says.udp(source, to, *(ports or self.ports()), text))

    def sinks_of_client(self, to):
        """Returns the sinks where a datagram of c1 to this address may arrive."""
        address, sinks = ipaddress.ip_address(to), set()
        for settings in self.valid:
            named = networks(settings["Destinations"])
            is_named = contains(named, address)
            is_metadata = to in self.METADATA[0] + self.METADATA[1]
            if (named or is_metadata) and not is_named:
                continue
            if to in self.C2:
                sinks |= set() if settings["ClientIsolation"] else {"c2"}
            else:
                sinks |= {"inet"} if settings["Gateway"] == "e1" else self.uplinks
        return sinks

    def sinks_routed(self, side):
        """Returns the sinks of datagrams from outside that are not for the tunnel: none, unless the administrator forwards for lan."""
        return set(self.SIDES) if self.router and side == "lan" else set()

    def sinks_inbound(self, side):
        """Returns the sinks of datagrams from outside to c1. `Destinations` restricts only what c1 sends."""
        sinks = self.sinks_routed(side)  # for when the tunnel has no routes
        for settings in self.valid:
            is_uplink = side == "inet" if settings["Gateway"] == "e1" else side in self.uplinks
            if settings["Inbound"] == "all" and is_uplink:
                sinks.add("c1")
        return sinks

    def sides(self, some=1):
        for side in self.SIDES:
            for family in (0, 1):
                if self.meanwhile.randrange(some):
                    continue
                source = self.OF_SIDE[side][family]
                for to in self.SIDES:
                    if to != side:
                        self.from_side("L2", side, source, self.OF_SIDE[to][family], functools.partial(self.sinks_routed, side))
                self.from_side("L3", side, source, self.C1[family], functools.partial(self.sinks_inbound, side))
                if self.router and side == "lan" and (self.is_changing or self.state == "down"):
                    continue  # without the gateway's rules, a host in lan may use any source
                as_client, accomplice = self.C1[family], self.ACCOMPLICE[family]
                ports = self.ports()[::-1]
                self.from_side("L4", side, as_client, accomplice, ports=ports)
                for other in (self.C2, self.SELF):
                    self.from_side("L4", side, other[family], as_client)
                self.watch_accomplice(family, ports)

    def watch_accomplice(self, family, ports):
        accomplice = self.ACCOMPLICE[family]
        back = (ports[1], ports[0])
        self.from_side("L4", "inet", accomplice, self.OWN["inet"][family], ports=back)
        self.from_side("L4", "inet", accomplice, self.C1[family], functools.partial(self.sinks_inbound, "inet"), ports=back)

    def clients(self):
        for family in (0, 1):
            targets = [*self.METADATA[family], self.C2[family], self.ACCOMPLICE[family], *(self.OF_SIDE[side][family] for side in self.SIDES)]
            if family == 1:
                targets.append("2001:db8:66::9")
            for to in targets:
                text = self.mark("L3" if to in self.METADATA[family] + self.C2 else "L2", f"{self.C1[family]} to {to}, sent by c1", functools.partial(self.sinks_of_client, to))
                with contextlib.suppress(OSError):
                    self.sockets[family].sendto(text, (to, 4002))

    sockets = None

    def storm(self):
        self.sides(3)
        time.sleep(0.001)

    def check(self):
        self.sides()
        if self.state == "up" and self.has_session:
            if Gateway.sockets is None:
                Gateway.sockets = []
                with inside("c1"):
                    for family, source in ((socket.AF_INET, self.C1[0]), (socket.AF_INET6, self.C1[1])):
                        made = socket.socket(family, socket.SOCK_DGRAM)
                        made.bind((source, 0))
                        Gateway.sockets.append(made)
            self.clients()
            self.has_session = self.reaches_gateway("c1")

    def judge(self, sink, packet):
        if packet.protocol != 17 or packet.payload[8 : 8 + len(MARK)] != MARK:
            return
        (number,) = struct.unpack("!I", packet.payload[8 + len(MARK) :][:4])
        probe = self.probes.get(number)
        if probe and sink not in probe[3] and sink not in probe[2]():
            self.violate(f"{probe[0]}: the datagram {probe[1]}, came to {sink} as {packet}")
        elif probe:
            counts[f"forwarded to {sink}"] += 1

    # --- events

    def hostile(self):
        return [self.ra] * 4 + [self.default] * 3 + [self.flap, self.claim, self.redirect, self.too_big, self.filter]

    def ra(self):
        side, chosen = self.rng.choice(self.SIDES), ra_arguments(self.rng, True)
        yield f"advertisement on the link of {side} {chosen}"
        link = self.links[side]
        link.send(says.advertisement(link.own, **chosen))

    def default(self):
        rng = self.rng
        change = rng.choice(("add", "add", "best", "gone", "back"))
        family, via = rng.choice((("-4", {"inet": "203.0.113.1", "other": "198.18.5.1"}), ("-6", {"inet": "2001:db8:1::1", "other": "2001:db8:5::1"})))
        yield f"default route {family}: {change}"
        if change in ("add", "best"):
            self.uplinks = {"inet", "other"}
        lines = {
            "add": [f"{family} route append default via {via['other']} dev e5 metric 2000"],
            "best": [f"{family} route append default via {via['other']} dev e5 metric 1"],
            "gone": [f"{family} route flush default"],
            "back": [f"{family} route flush default", f"{family} route add default via {via['inet']} dev e1"],
        }[change]
        configure("g1", lines)

    def flap(self):
        side, device = self.rng.choice((("other", "e5"), ("lan", "lan1")))
        yield f"the link of {side} goes and comes"
        configure("g1", [f"link set {device} down", f"link set {device} up", f"addr add {self.OWN[side][1]}/64 dev {device} nodad"])
        wait_for_link("g1", device)

    def claim(self):
        side, address = self.rng.choice((("inet", "203.0.113.1"), ("lan", "10.9.0.2"), ("other", "203.0.113.1"), ("inet", "10.9.0.2"), ("lan", "2001:db8:1::1")))
        yield f"claim of {address} on the link of {side}"
        link = self.links[side]
        link.send_frame(says.claim(link.victim, link.own, address))

    def redirect(self):
        side, *ends = self.rng.choice((("inet", "203.0.113.1", "203.0.113.5", "198.51.100.7", "203.0.113.66"), ("lan", "192.168.77.2", "192.168.77.1", "198.51.100.7", "192.168.77.66")))
        yield "redirect on the link of {}: by {} of {} for {} to {}".format(side, *ends)
        self.links[side].send(says.redirect(self.links[side].own, *ends))

    def too_big(self):
        mtu = self.rng.choice((0, 68, 552, 1280, 65535))
        source, victim, about = self.rng.choice((("203.0.113.1", "203.0.113.5", "192.0.2.2"), ("2001:db8:1::1", "2001:db8:1::5", "2001:db8:3::2"), ("203.0.113.1", "10.9.0.2", "198.51.100.2")))
        yield f"too big for {mtu} by {source} about {victim} to {about}"
        self.links["inet"].send(says.too_big(source, victim, about, 51820, 51820, mtu))

    def filter(self):
        value = self.rng.choice((0, 1, 2))
        yield f"rp_filter {value}"
        for device in ("all", "e1", "e5", "lan1"):
            set_sysctl("g1", f"net.ipv4.conf.{device}.rp_filter", value)


class Counts(dict):
    def __missing__(self, name):
        return 0


counts = Counts()


def history(seed, steps, watch, links):
    """Plays one history. Returns its violations, its events and its kind."""
    rng = random.Random(seed)
    kind = rng.choice((Client, Gateway))
    of = kind(rng, watch, {name: link for name, link in links.items() if (name == "h2") == (kind is Client)})
    events = []
    for _ in range(steps or rng.randrange(5, 9)):
        event = rng.choice(of.events())()
        events.append(next(event))
        said.write(f"=== {seed}: {events[-1]}\n")
        next(event, None)
        of.check()
        watch.drain()
        if of.violations:
            break
    of.end()
    watch.drain()
    counts["events"] += len(events)
    return of.violations, events, kind.__name__


def main():
    first, count, steps = (int(word) for word in (sys.argv[1:] + ["0"])[:3])
    links = [Link("h2", "h2", "e2", ("h1", "e1")), Link("inet", "inet", "i1", ("g1", "e1")), Link("other", "other", "o1", ("g1", "e5")),
             Link("lan", "lan", "lan2", ("g1", "lan1")), Link("c1", "c1", "wg3"), Link("c2", "c2", "wg4")]
    watch = Watch(links)
    links = {link.name: link for link in links}
    begun = time.monotonic()
    for seed in range(first, first + count):
        violations, events, kind = history(seed, steps, watch, links)
        if violations:
            print(f"history {seed} of a {kind.lower()}:")
            for number, event in enumerate(events, 1):
                print(f"{number:4}  {event}")
            for violation in violations[:5]:
                print(f"      {violation}")
            print(f"to replay: SEED={seed} STEPS={len(events)} tests/netns/hostile-histories.sh")
            print(f"history {seed}, event {len(events)}: {violations[0]}", file=open(f"{WORK}/violation", "w"))
            sys.exit(1)
    took = time.monotonic() - begun
    print(f"{count} histories of {counts.pop('events')} events in {took:.0f} s; " + ", ".join(f"{counts[name]} {name}" for name in sorted(counts)))


main()
