#!/usr/bin/env python3
"""grpc_garbage.py SOCKET: what a broken or hostile peer sends to belfry-device-plugin. Every connection must end or be
ignored. Prints how many connections were made."""
import random
import socket
import struct
import sys
import threading

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
random.seed(18)


def frame(kind, flags, stream, payload=b"", length=None):
    return struct.pack(">I", len(payload) if length is None else length)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call(stream, body, method=b"Allocate", end=1):
    fields = literal(b":method", b"POST") + literal(b":scheme", b"http") + literal(b":authority", b"/var/lib/kubelet/x.sock")
    fields += literal(b":path", b"/v1beta1.DevicePlugin/" + method) + literal(b"te", b"trailers")
    return frame(1, 4, stream, fields) + frame(0, end, stream, body)


def prefixed(message, flag=0, length=None):
    return struct.pack(">BI", flag, len(message) if length is None else length) + message


SETTINGS = PREFACE + frame(4, 0, 0)
INPUTS = [
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    PREFACE[:10],
    PREFACE,
    SETTINGS,
    SETTINGS[:-3],
    SETTINGS + call(1, prefixed(b"\x0a\xff\xff\xff\xff\x0f")),  # longer than the message
    SETTINGS + call(1, prefixed(b"\x0a" + b"\xff" * 20)),  # a number without an end
    SETTINGS + call(1, prefixed(b"\x0a\x02\x0a\x05")),  # inside a container
    SETTINGS + call(1, prefixed(b"", flag=1)),  # compressed
    SETTINGS + call(1, prefixed(b"", length=1 << 30)),
    SETTINGS + call(1, b""),
    SETTINGS + call(1, prefixed(b"\x0a\x00" * 70)),  # more containers than there can be
    SETTINGS + call(1, prefixed(b"\x0a\xff\x00" + b"\x0a\x7d" + b"a" * 125)),  # a long ID
    SETTINGS + call(2, prefixed(b"")),  # a server's stream
    SETTINGS + call(1, prefixed(b""), method=b"x" * 90),
    SETTINGS + call(1, prefixed(b""), end=0),  # half a call
    SETTINGS + frame(1, 0, 1, literal(b":method", b"POST")) + frame(9, 0, 1, b"\x00" * 64) * 2000,  # headers without an end
    SETTINGS + frame(6, 0, 0, b"pingpong") * 20000,
    SETTINGS + frame(4, 0, 0) * 20000,
    SETTINGS + b"".join(call(1 + 2 * i, b"", end=0) for i in range(2000)),  # more streams than allowed
    SETTINGS + b"".join(call(1 + 2 * i, prefixed(b"")) + frame(3, 0, 1 + 2 * i, b"\x00\x00\x00\x08") for i in range(2000)),
    SETTINGS + frame(1, 4, 1, literal(b":path", b"/")) + frame(0, 0, 1, b"\x00" * 16000) * 40,  # a long message
    SETTINGS + b"".join(call(1 + 2 * i, prefixed(b""), method=b"ListAndWatch") for i in range(60)),
    SETTINGS + frame(8, 0, 0, b"\x7f\xff\xff\xff") * 3,
    SETTINGS + frame(0, 0, 1, b"x", length=1 << 23),
]
INPUTS += [SETTINGS + bytes(random.randrange(256) for _ in range(random.randrange(400))) for _ in range(60)]
for number in range(60):
    good = bytearray(SETTINGS + call(1, prefixed(b"\x0a\x0a\x0a\x08soft:0/1")))
    for _ in range(1 + number % 4):
        good[random.randrange(len(PREFACE), len(good))] = random.randrange(256)
    INPUTS.append(bytes(good[: len(good) - number % 3]))



def drain(sock):
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass


kept = []
for data in INPUTS:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(200)
    sock.connect(sys.argv[1])
    reader = threading.Thread(target=drain, args=(sock,))
    reader.start()
    try:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
    except (BrokenPipeError, ConnectionResetError):
        pass
    reader.join()
    sock.close()
# A peer that sends and does not read. It is not read either, and its connection costs a buffer.
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(1)
sock.connect(sys.argv[1])
try:
    sock.sendall(SETTINGS + frame(6, 0, 0, b"pingpong") * 200000)
except (OSError, TimeoutError):
    pass
kept.append(sock)
# Connections that stay, silent. Further ones are refused until these are gone.
for _ in range(100):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(60)
    try:
        sock.connect(sys.argv[1])
        kept.append(sock)
    except OSError:
        break
print(len(INPUTS), len(kept))
