"""probe_peer.py HOW BYTES: a process on a vGPU that connects for probes itself, instead of the library of Belfry, and answers
orders to dump in a wrong way, or hands over last copies. Prints "there" when it has the probes. Ends with its standard
input."""
import array
import ctypes
import fcntl
import os
import random
import select
import socket
import struct
import sys

MAGIC, VERSION = 0xBE1F94E5, 2
ORDER = struct.Struct("<6IQ64s128s")
NOTE = struct.Struct("<4I2Q4I128s256s")
ADD, READY, REMOVE, DUMP = 1, 2, 3, 4
KERNEL, MODULE, AREA, LAST = 1, 2, 3, 4
F_ADD_SEALS, ALL_SEALS = 1033, 15
PR_SET_NAME = 15


def note(kind, number, ticket=0, kernel=b"", text=b"", outcome=0, identity=0):
    return NOTE.pack(MAGIC, VERSION, kind, number, ticket, identity, outcome, 0, 0, 0, kernel, text)


def send(sock, data, fd=None):
    control = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    sock.sendmsg([data], control)


def memory(size, content=None, is_sealed=True):
    fd = os.memfd_create("peer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if content is not None:
        os.pwrite(fd, content, 0)
    if is_sealed:
        fcntl.fcntl(fd, F_ADD_SEALS, ALL_SEALS)
    return fd


def answer(sock, how, number, ticket, size):
    if how == "unsealed":
        send(sock, note(AREA, number, ticket), memory(size, is_sealed=False))
    elif how == "short":
        send(sock, note(AREA, number, ticket), memory(size - 64))
    elif how == "pipe":
        send(sock, note(AREA, number, ticket), os.pipe()[0])
    elif how == "random":
        send(sock, note(AREA, number, ticket), memory(size, random.Random(7).randbytes(size)))
    elif how == "ones":
        send(sock, note(AREA, number, ticket), memory(size, b"\xff" * size))
    elif how == "text":
        send(sock, note(AREA, number, ticket, text=b"\x1b[2J\xff" * 60))
    elif how == "flood":
        for i in range(2000):
            send(sock, note(KERNEL, number, kernel=b"k%d" % i, identity=i))
            send(sock, note(MODULE, number, outcome=4, text=b"reason %d" % i))
            send(sock, note(AREA, number, ticket + 1 + i))
            send(sock, note(LAST, number), memory(64))
        send(sock, note(AREA, number, ticket), memory(size))
    elif how == "garbage":
        sock.send(os.urandom(100))


def connect():
    """A new connection, and the numbers of the probes."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(os.environ["PEER_SOCKET"])
    numbers = []
    while True:
        fields = ORDER.unpack(sock.recv(ORDER.size))
        if fields[2] == READY:
            return sock, numbers
        numbers.append(fields[3])


def hand_over(how, size):
    """Last copies, in wrong ways."""
    copy = os.memfd_create("large", os.MFD_CLOEXEC) if how == "large" else memory(size)
    if how == "large":
        os.posix_fallocate(copy, 0, 64 << 20)
    for i in range(5 if how == "renamed" else 1):
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"name%d" % i, 0, 0, 0)
        sock, numbers = connect()
        for number in numbers[:1] if how == "first" else numbers:
            send(sock, note(LAST, number), copy)
    print("there", flush=True)
    sys.stdin.read()


def main():
    how, size = sys.argv[1], int(sys.argv[2])
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    context = ctypes.c_void_p()
    assert ctypes.CDLL("libcuda.so.1").cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    if how in ("renamed", "large", "last", "first"):
        hand_over(how, size)
        return
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(os.environ["PEER_SOCKET"])
    while True:
        ready, _, _ = select.select([sock, sys.stdin], [], [])
        if sock not in ready:
            return
        data, _, _, _ = sock.recvmsg(ORDER.size, socket.CMSG_SPACE(4))
        if not data:
            print("closed", flush=True)
            sys.stdin.read()
            return
        fields = ORDER.unpack(data)
        kind, number, ticket = fields[2], fields[3], fields[6]
        if kind == READY:
            print("there", flush=True)
        elif kind == DUMP:
            try:
                answer(sock, how, number, ticket, size)
            except OSError:
                pass


main()
