#!/usr/bin/env python3
"""oci_send.py SOCKET WHAT: sends something to the OCI socket that a container runtime would not, and waits until the
other side has closed the connection. WHAT: nothing, garbage, half, no-fd, no-vgpu, pipe, many, large."""
import array
import json
import os
import socket
import sys

path, what = sys.argv[1:3]
state = {"ociVersion": "1.0.2", "fds": ["seccompFd"], "pid": 0, "metadata": "belfry:vgpu=one",
         "state": {"ociVersion": "1.0.2", "id": "c1", "status": "creating", "pid": 0, "bundle": "/x"}}
if what == "no-vgpu":
    del state["metadata"]
text = json.dumps(state).encode()
if what == "garbage":
    text = b"\x00\xffnot json at all"
elif what == "half":
    text = text[:len(text) // 2]
elif what == "large":
    text = b'{"fds": ["' + b"x" * (2 << 20)
reader, writer = os.pipe()
fds = [reader] * (16 if what == "many" else 1)
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
    sock.settimeout(60)
    sock.connect(path)
    if what == "no-fd":
        sock.sendall(text)
    elif what != "nothing":
        sent = sock.sendmsg([text[:1000]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        try:
            sock.sendall(text[sent:])
        except (BrokenPipeError, ConnectionResetError):
            pass
    if what in ("nothing", "half"):
        sock.shutdown(socket.SHUT_WR)
    try:
        assert not sock.recv(1), "the socket has answered"
    except ConnectionResetError:
        pass
