"""Makes system calls from inside a process that runs, in each of its threads, as somebody would who has taken it over.

    intruder.py PID CALL...     prints a line for each thread and call: CALL, and `refused`, an errno's name, or `done`

Root traces the process, has a thread of it execute one `syscall` instruction with other registers, and puts everything
back. A call that a filter refuses is a SIGSYS on its way, which is taken away. For x86-64.
"""

import ctypes
import errno
import os
import signal
import struct
import sys

PEEK, POKE, GETREGS, SETREGS, DETACH, SYSCALL, SEIZE, INTERRUPT = 1, 4, 12, 13, 17, 24, 0x4206, 0x4207
WALL = 0x40000000
NAMES = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs".split()
)
ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
AT_FDCWD = -100
PATH = object()

# A number, its arguments, and what PATH is. None of them does harm if it is not refused.
CALLS = {
    "open": (257, (AT_FDCWD, PATH, os.O_RDONLY), b"/etc/passwd"),
    "open-tun": (257, (AT_FDCWD, PATH, os.O_RDWR), b"/dev/net/tun"),
    "create": (257, (AT_FDCWD, PATH, os.O_WRONLY | os.O_CREAT, 0o600), b"/tmp/intruder"),
    "execute": (59, (PATH, 0, 0), b"/bin/true"),
    "fork": (57, (), b""),
    "ptrace": (101, (0, 0, 0, 0), b""),
    "read-memory": (310, (1, 0, 0, 0, 0, 0), b""),
    "signal": (62, (1, 0), b""),
    "unix-socket": (41, (1, 1, 0), b""),
    "netlink-socket": (41, (16, 3, 0), b""),
    "raw-socket": (41, (2, 3, 1), b""),
    "listen": (50, (-1, 1), b""),
    "enter-network": (308, (-1, 0x40000000), b""),
    "new-user-namespace": (272, (0x10000000,), b""),
    "mount": (165, (0, 0, 0, 0, 0), b""),
    "executable-memory": (9, (0, 4096, 5, 0x22, -1, 0), b""),
    "capset": (126, (0, 0), b""),
    "dumpable": (157, (4, 1), b""),
    "io-uring": (425, (0, 0), b""),
    "bpf": (321, (-1, 0, 0), b""),
}

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
libc.ptrace.restype = ctypes.c_long


def ptrace(request, tid, address=0, data=0):
    ctypes.set_errno(0)
    answer = libc.ptrace(request, tid, address, data)
    if answer == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer & 0xFFFFFFFFFFFFFFFF


def registers(tid):
    block = ctypes.create_string_buffer(8 * len(NAMES))
    ptrace(GETREGS, tid, 0, ctypes.addressof(block))
    return dict(zip(NAMES, struct.unpack(f"{len(NAMES)}Q", block.raw)))


def set_registers(tid, values):
    block = ctypes.create_string_buffer(struct.pack(f"{len(NAMES)}Q", *(values[name] for name in NAMES)))
    ptrace(SETREGS, tid, 0, ctypes.addressof(block))


def field(tid, name):
    with open(f"/proc/{tid}/status") as status:
        return next(line.split()[1] for line in status if line.startswith(f"{name}:"))


def resume(tid, call):
    """Goes on to the next stop, without the signal that it stopped for."""
    ptrace(SYSCALL, tid)
    _, status = os.waitpid(tid, WALL)
    if not os.WIFSTOPPED(status):
        print(call, "killed", flush=True)
        os._exit(0)


def make(tid, instruction, saved, call):
    number, arguments, path = CALLS[call]
    words = path.ljust(len(path) // 8 * 8 + 8, b"\0")
    place = (saved["rsp"] - 8192) & ~0xF
    for at in range(0, len(words), 8):
        ptrace(POKE, tid, place + at, int.from_bytes(words[at : at + 8], "little"))
    changed = dict(saved, rip=instruction, rax=number, orig_rax=0xFFFFFFFFFFFFFFFF)
    for register, value in zip(ARGUMENTS, arguments):
        changed[register] = (place if value is PATH else value) & 0xFFFFFFFFFFFFFFFF
    set_registers(tid, changed)
    # It stops before the call and behind it, where a SIGSYS may be on its way.
    for _ in range(2):
        resume(tid, call)
    if int(field(tid, "SigPnd"), 16) >> (signal.SIGSYS - 1) & 1:
        resume(tid, call)
        return "refused"
    answer = ctypes.c_int64(registers(tid)["rax"]).value
    return errno.errorcode.get(-answer, str(answer)) if answer < 0 else "done"


def main():
    pid, calls = int(sys.argv[1]), sys.argv[2:]
    instruction = None
    for tid in sorted(int(task) for task in os.listdir(f"/proc/{pid}/task")):
        ptrace(SEIZE, tid)
        ptrace(INTERRUPT, tid)
        os.waitpid(tid, WALL)
        saved = registers(tid)
        # A thread that waits stands behind the instruction of its call, which is good for all.
        if instruction is None:
            before = (saved["rip"] - 2) & 0xFFFFFFFFFFFFFFFF
            assert ptrace(PEEK, tid, before) & 0xFFFF == 0x050F, "the first thread does not wait"
            instruction = before
        try:
            for call in calls:
                print(call, make(tid, instruction, saved, call), flush=True)
        finally:
            set_registers(tid, saved)
            ptrace(DETACH, tid)


main()
