#!/usr/bin/env python3
"""The loads of tests/lab/proxies, and the tables of what it measured:

    proxies.py serve ADDRESS                      port 8000: answers each line with 200 bytes
    proxies.py requests HOST PORT RATE SECONDS    connections that ask once each, begun at this rate whatever the answers do:
                                                  median and 99th percentile of milliseconds, percentage of failures
    proxies.py idle HOST PORT COUNT               connections that have asked once, held until standard input ends
    proxies.py report FILE...                     Markdown
"""

import asyncio
import gc
import json
import statistics
import sys
import time

ANSWER = b"x" * 199 + b"\n"


async def serve(address):
    async def one(reader, writer):
        try:
            while await reader.readline():
                writer.write(ANSWER)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    await asyncio.start_server(one, address, 8000, backlog=4096)
    await asyncio.sleep(1 << 30)


async def ask(host, port):
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"a request of an ordinary length, as it were\n")
    if await reader.readexactly(len(ANSWER)) != ANSWER:
        raise ConnectionError("another answer")
    return writer


async def requests(host, port, rate, seconds):
    gc.disable()
    took, failures = [], 0

    async def one(due):
        nonlocal failures
        try:
            (await asyncio.wait_for(ask(host, port), 10)).close()
            took.append((time.perf_counter() - due) * 1000)
        except (OSError, EOFError, asyncio.TimeoutError):
            failures += 1

    begin, tasks = time.perf_counter(), []
    for number in range(int(rate) * int(seconds)):
        due = begin + number / int(rate)
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    took.sort()
    percent = 100 * failures / len(tasks)
    if took:
        print(f"{took[len(took) // 2]:.3f} {took[len(took) * 99 // 100]:.3f} {percent:.2f}")
    else:
        print("null null 100")


async def idle(host, port, count):
    some = asyncio.Semaphore(50)

    async def one():
        async with some:
            return await ask(host, port)

    held = await asyncio.wait_for(asyncio.gather(*(one() for _ in range(int(count)))), 18)
    print(f"{len(held)} are open", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def report(*files):
    samples, order = {}, []
    for file in files:
        for line in open(file):
            sample = json.loads(line)
            key = (sample["network"], sample["figure"])
            if key not in order:
                order.append(key)
            samples.setdefault(key, {}).setdefault(sample["subject"], []).append(sample["value"])
    subjects = [name for name in ["tunnel", "kernel", "embedded", "netstack", "wireproxy", "onetun"]
                if any(name in of for of in samples.values())]
    for network in dict.fromkeys(network for network, _ in order):
        rounds = max(len(values) for key, of in samples.items() if key[0] == network for values in of.values())
        print(f"### {network}, {rounds} rounds\n")
        print("| | " + " | ".join(subjects) + " |")
        print("|---|" + "--:|" * len(subjects))
        for key in (key for key in order if key[0] == network):
            cells = []
            for subject in subjects:
                all_of_them = samples[key].get(subject, [])
                values = sorted(value for value in all_of_them if value is not None)
                if not values:
                    cells.append("fails" if all_of_them else "")
                    continue
                short = (lambda v: f"{v:.0f}") if values[-1] >= 100 else (lambda v: f"{v:.2f}")
                missing = len(all_of_them) - len(values)
                cells.append(f"{short(statistics.median(values))} [{short(values[0])}, {short(values[-1])}]"
                             + (f", fails {missing}x" if missing else ""))
            print(f"| {key[1]} | " + " | ".join(cells) + " |")
        print()


command, *arguments = sys.argv[1:]
if command == "report":
    report(*arguments)
else:
    asyncio.run({"serve": serve, "requests": requests, "idle": idle}[command](*arguments))
