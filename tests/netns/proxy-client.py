"""What no ordinary client does with a proxy: plain SOCKS5, UDP ASSOCIATE, many connections, and readers that do not read.

    proxy-client.py reply PROXY HOST PORT [SECONDS]      the number of the SOCKS5 reply (RFC 1928, 6)
    proxy-client.py udp PROXY HOST PORT COUNT BYTES      COUNT datagrams to an echo server and back, one after the other
    proxy-client.py name PROXY SERVER NAME               the address of a name, asked by datagram
    proxy-client.py bridge PROXY LOCAL HOST PORT         what comes to the UDP port LOCAL here goes to HOST:PORT by UDP
                                                         ASSOCIATE, and the answers to whoever was the last to send
    proxy-client.py halves PROXY HOST                    the ends of the two halves of connections, in both orders
    proxy-client.py reset PROXY HOST                     resets: of the target, and then of the client
    proxy-client.py many PROXY HOST COUNT LINE...        COUNT connections to an echo server; for each line of standard input
                                                         all of them are used once
    proxy-client.py unread PROXY HOST PORT COUNT         COUNT connections whose client never reads, until a line comes
    proxy-client.py stuck PROXY HOST PORT COUNT          COUNT connections, each written to until it takes no more

PROXY is HOST:PORT of a SOCKS5 proxy, or forward:PORT. What is expected and does not happen is an error.
"""

import asyncio
import hashlib
import ipaddress
import resource
import socket
import struct
import sys

PATIENCE = 60


def request(command, host, port):
    try:
        address = ipaddress.ip_address(host)
        place = bytes([1 if address.version == 4 else 4]) + address.packed
    except ValueError:
        place = bytes([3, len(host)]) + host.encode()
    return bytes([5, command, 0]) + place + struct.pack("!H", port)


async def ask(proxy, command, host, port, limit=65536, buffer=None):
    """A connection to the proxy, the number of its reply, and the address in it."""
    at, _, number = proxy.rpartition(":")
    client = socket.socket()
    client.setblocking(False)
    if buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    await asyncio.get_running_loop().sock_connect(client, (at or "127.0.0.1", int(number)))
    reader, writer = await asyncio.open_connection(sock=client, limit=limit)
    writer.write(b"\x05\x01\x00" + request(command, host, port))
    if await reader.readexactly(2) != b"\x05\x00":
        sys.exit("the proxy wants a password")
    _, reply, _, kind = await reader.readexactly(4)
    bound = ipaddress.ip_address(await reader.readexactly(4 if kind == 1 else 16))
    (number,) = struct.unpack("!H", await reader.readexactly(2))
    return reader, writer, reply, (str(bound), number)


async def connect(proxy, host, port, limit=65536):
    if proxy.startswith("forward:"):
        return await asyncio.open_connection("127.0.0.1", int(proxy.removeprefix("forward:")), limit=limit)
    reader, writer, reply, _ = await ask(proxy, 1, host, port, limit)
    if reply:
        sys.exit(f"{host}:{port}: reply {reply}")
    return reader, writer


async def reply(proxy, host, port, seconds="60"):
    _, _, number, _ = await asyncio.wait_for(ask(proxy, 1, host, int(port)), int(seconds))
    print(number)


class Received(asyncio.DatagramProtocol):
    def __init__(self):
        self.queue = asyncio.Queue()

    def datagram_received(self, data, _):
        self.queue.put_nowait(data)


async def associate(proxy):
    reader, writer, number, bound = await ask(proxy, 3, "0.0.0.0", 0)
    if number:
        sys.exit(f"UDP ASSOCIATE: reply {number}")
    loop = asyncio.get_running_loop()
    transport, received = await loop.create_datagram_endpoint(Received, remote_addr=bound)
    return (reader, writer), transport, received.queue


async def udp(proxy, host, port, count, length):
    connection, relay, received = await associate(proxy)
    head = b"\x00\x00\x00" + request(1, host, int(port))[3:]
    for number in range(int(count)):
        data = struct.pack("!I", number) * (int(length) // 4)
        for _ in range(5):  # a datagram may be lost
            relay.sendto(head + data)
            try:
                while (came := await asyncio.wait_for(received.get(), 4))[len(head) :] != data:
                    if came[len(head) :][:4] > data[:4]:
                        sys.exit("another datagram came")
                break
            except asyncio.TimeoutError:
                pass
        else:
            sys.exit(f"datagram {number}: no answer")
    print(f"{count} datagrams of {length}")
    connection[1].close()


async def name(proxy, server, wanted):
    connection, relay, received = await associate(proxy)
    labels = b"".join(bytes([len(label)]) + label.encode() for label in wanted.split("."))
    question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + b"\x00\x00\x01\x00\x01"
    relay.sendto(b"\x00\x00\x00" + request(1, server, 53)[3:] + question)
    answer = await asyncio.wait_for(received.get(), 20)
    print(ipaddress.ip_address(answer[-4:]))
    connection[1].close()


class Near(asyncio.DatagramProtocol):
    """The local end of a bridge."""

    def __init__(self, send):
        self.send, self.asker = send, None

    def datagram_received(self, data, asker):
        self.asker = asker
        self.send(data)


async def bridge(proxy, local, host, port):
    connection, relay, received = await associate(proxy)
    head = b"\x00\x00\x00" + request(1, host, int(port))[3:]
    near, ends = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Near(lambda data: relay.sendto(head + data)), ("127.0.0.1", int(local)))
    while came := await received.get():
        # The address that it came from, of either family.
        near.sendto(came[10 if came[3] == 1 else 22 :], ends.asker)


async def halves(proxy, host):
    """The client's half first: all of what it sends arrives, and what is answered after that as well."""
    data = b"0123456789abcdef" * 65536
    reader, writer = await connect(proxy, host, 71)
    writer.write(data)
    writer.write_eof()
    said = (await asyncio.wait_for(reader.read(), PATIENCE)).decode().split()
    assert said == [str(len(data)), hashlib.sha256(data).hexdigest()], said
    print("the client's half first: ok")
    # The target's half first: what the client sends after that arrives as well.
    reader, writer = await connect(proxy, host, 73)
    assert await asyncio.wait_for(reader.readline(), PATIENCE) == b"hello\n"
    writer.write(b"a line\n")
    assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
    writer.write(b"x" * 1000)
    writer.close()
    await writer.wait_closed()
    print("the target's half first: ok")


async def reset(proxy, host):
    reader, writer = await connect(proxy, host, 70)
    writer.write(b"x")
    try:
        data = await asyncio.wait_for(reader.read(), PATIENCE)
        sys.exit(f"the target's reset came as an end, after {len(data)} bytes")
    except ConnectionResetError:
        print("the target's reset: ok")
    reader, writer = await connect(proxy, host, 7)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    await asyncio.sleep(0)
    print("the client's reset: sent")


async def lines():
    """Yields as lines of standard input come."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        yield line.strip()


async def many(proxy, host, count):
    some = asyncio.Semaphore(200)

    async def one():
        async with some:
            return await connect(proxy, host, 7, limit=1024)

    async def use(reader, writer, byte):
        async with some:
            writer.write(byte)
            if await reader.readexactly(1) != byte:
                sys.exit("not what was sent")

    async def all_of_them(byte):
        await asyncio.wait_for(asyncio.gather(*(use(*ends, byte) for ends in open_ones)), 4 * PATIENCE)

    open_ones = await asyncio.wait_for(asyncio.gather(*(one() for _ in range(int(count)))), 4 * PATIENCE)
    await all_of_them(b"a")
    print(f"{count} are open", flush=True)
    async for _ in lines():
        await all_of_them(b"b")
        print(f"{count} were used", flush=True)


async def unread(proxy, host, port, count):
    some = asyncio.Semaphore(200)

    async def one():
        async with some:
            # What waits here is the client's memory; most of it is to wait in the proxy.
            reader, writer, reply, _ = await ask(proxy, 1, host, int(port), limit=1024, buffer=4096)
        reader._transport.pause_reading()
        return reply, reader, writer

    # A stack whose memory is full resets connections, be it before the proxy has said that they are there.
    ends = await asyncio.wait_for(asyncio.gather(*(one() for _ in range(int(count)))), 4 * PATIENCE)
    held = [end for end in ends if end[0] == 0]
    if len(held) < len(ends) * 3 / 4:
        sys.exit(f"only {len(held)} of {count} connections were made")
    print(f"{len(held)} do not read", flush=True)
    async for _ in lines():
        break


async def stuck(proxy, host, port, count):
    """Writes until nothing is taken for a second; says how many bytes each of them took at most."""

    async def one():
        _, writer = await connect(proxy, host, int(port))
        taken = 0
        while True:
            writer.write(b"x" * 65536)
            try:
                await asyncio.wait_for(writer.drain(), 2)
                taken += 65536
            except asyncio.TimeoutError:
                return taken, writer

    took = await asyncio.gather(*(one() for _ in range(int(count))))
    print(f"{count} are stuck, after {max(taken for taken, _ in took)} bytes", flush=True)
    async for _ in lines():
        break


_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
commands = {"reply": reply, "udp": udp, "name": name, "bridge": bridge, "halves": halves, "reset": reset, "many": many,
            "unread": unread, "stuck": stuck}
asyncio.run(commands[sys.argv[1]](*sys.argv[2:]))
