"""The servers at the other end of a tunnel, on the addresses that are the arguments:

    proxy-far.py FOLDER ADDRESS...

    TCP 80, 8080  HTTP: says what it was asked; /bytes/N is N bytes          443  the same with TLS (FOLDER/far.pem, if there)
    TCP 7         echo                                                71  at the end of what comes: its length and SHA-256
    TCP 9         reads and says nothing                              72  never reads
    TCP 19        writes for ever                                     70  resets after the first bytes
    UDP 7         echo                                                TCP 73  says `hello', reads a line, and ends its half
    53            DNS: big.example is truncated over UDP, none.example is not there, all others are ADDRESS...;
                  the name, a line in FOLDER/names

For each connection: port and what ended it (end, reset), a line in FOLDER/connections.
"""

import asyncio
import base64
import hashlib
import ipaddress
import os
import socket
import ssl
import struct
import sys

folder, addresses = sys.argv[1], [ipaddress.ip_address(text) for text in sys.argv[2:]]
names = open(f"{folder}/names", "a", buffering=1)
connections = open(f"{folder}/connections", "a", buffering=1)


def answer(question, is_stream):
    end, labels = 12, []
    while question[end]:
        labels.append(question[end + 1 : end + 1 + question[end]].decode("latin-1"))
        end += 1 + question[end]
    name = ".".join(labels).lower()
    (kind,) = struct.unpack("!H", question[end + 1 : end + 3])
    names.write(f"{name}\n")
    found = [address for address in addresses if kind == (1 if address.version == 4 else 28)]
    flags = 0x8180
    if name == "big.example" and not is_stream:
        flags, found = flags | 0x0200, []
    if name == "none.example":
        flags, found = flags | 3, []
    head = question[:2] + struct.pack("!HHHHH", flags, 1, len(found), 0, 0)
    records = [struct.pack("!HHHIH", 0xC00C, kind, 1, 60, len(a.packed)) + a.packed for a in found]
    return head + question[12 : end + 5] + b"".join(records)


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, reply):
        self.reply = reply

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        self.transport.sendto(self.reply(data), address)


async def names_by_stream(reader, writer):
    while True:
        (length,) = struct.unpack("!H", await reader.readexactly(2))
        reply = answer(await reader.readexactly(length), True)
        writer.write(struct.pack("!H", len(reply)) + reply)


async def http(reader, writer):
    head = await reader.readuntil(b"\r\n\r\n")
    fields = {}
    for line in head.decode().split("\r\n")[1:]:
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip()
    method, path, _ = head.decode().split(" ", 2)
    body = await reader.readexactly(int(fields.get("content-length", 0)))
    if fields.get("transfer-encoding", "") == "chunked":
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    if "upgrade" in fields.get("connection", "").lower() and fields.get("upgrade") == "websocket":
        # RFC 6455, 4.2.2. The first frame comes with the answer; then each is echoed as it is, masks included.
        key = fields["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            + f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
            + b"\x81\x05hello"
        )
        return await echo(reader, writer)
    if path == "/unasked":
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
        return await writer.drain()
    if path.startswith("/bytes/"):
        text = b"x" * int(path[len("/bytes/") :])
    elif path == "/page":
        text = b"<!DOCTYPE html><title>inside</title><p id=p>inside</p><script>fetch('/bytes/300000').then(r => r.text())" \
            b".then(text => document.title = 'loaded ' + text.length)</script>"
    else:
        text = head + body
    kind = "text/html" if path == "/page" else "text/plain"
    lines = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    writer.write(lines.encode() + (b"" if method == "HEAD" else text))
    await writer.drain()


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def digest(reader, writer):
    seen, length = hashlib.sha256(), 0
    while data := await reader.read(65536):
        seen.update(data)
        length += len(data)
    writer.write(f"{length} {seen.hexdigest()}\n".encode())
    await writer.drain()


async def discard(reader, writer):
    while await reader.read(65536):
        pass


async def for_ever(reader, writer):
    # Little waits here, however many there are.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    writer.transport.set_write_buffer_limits(16384)
    while True:
        writer.write(b"x" * 16384)
        await writer.drain()


async def never_reads(reader, writer):
    writer.transport.pause_reading()
    await asyncio.sleep(3600)


async def resets(reader, writer):
    await reader.read(1)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def ends_first(reader, writer):
    writer.write(b"hello\n")
    await reader.readline()
    writer.write_eof()
    rest = await reader.read()
    connections.write(f"73 after its own end: {len(rest)} bytes\n")


def served(port, serve):
    async def one(reader, writer):
        how = "end"
        try:
            await serve(reader, writer)
        except (ConnectionResetError, BrokenPipeError):
            how = "reset"
        except asyncio.IncompleteReadError:
            how = "cut"
        finally:
            connections.write(f"{port} {how}\n")
            writer.close()

    return one


async def main():
    loop = asyncio.get_running_loop()
    tls = None
    if os.path.exists(f"{folder}/far.pem"):
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(f"{folder}/far.pem")
    services = {80: http, 8080: http, 7: echo, 71: digest, 9: discard, 19: for_ever, 72: never_reads, 70: resets,
                73: ends_first, 53: names_by_stream}
    for address in map(str, addresses):
        for port, serve in services.items():
            await asyncio.start_server(served(port, serve), address, port, backlog=4096)
        if tls:
            await asyncio.start_server(served(443, http), address, 443, ssl=tls)
        await loop.create_datagram_endpoint(lambda: Datagrams(lambda data: answer(data, False)), (address, 53))
        await loop.create_datagram_endpoint(lambda: Datagrams(lambda data: data), (address, 7))
    open(f"{folder}/far-is-up", "w").close()
    await asyncio.sleep(1 << 30)


asyncio.run(main())
