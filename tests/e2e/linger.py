"""linger.py [--cuda] SOCKET...: send a descriptor to each socket whose last close waits ten minutes: a TCP socket with
SO_LINGER and unread data. Prints one line for each. Ends with its standard input. With --cuda the process
uses the GPU first: the socket for probes takes descriptors from such processes only."""
import array
import ctypes
import os
import socket
import struct
import sys
import threading


def lingering():
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    reader = listener.accept()[0]
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
    sender.setblocking(False)
    try:
        while True:
            sender.send(bytes(1 << 16))
    except BlockingIOError:
        return sender, reader


def connect(path):
    for kind in socket.SOCK_SEQPACKET, socket.SOCK_STREAM:
        try:
            sock = socket.socket(socket.AF_UNIX, kind)
            sock.connect(path)
            return sock
        except OSError as error:
            failure = error
    raise failure


kept, paths = [], sys.argv[1:]
is_client = paths[0] == "--cuda"
if is_client:
    paths = paths[1:]
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
for path in paths:
    sender, reader = lingering()
    sock = connect(path)
    if is_client and os.path.basename(path).startswith("probe."):
        sock.recv(4096)  # the server knows the process now
    try:
        sock.sendmsg([bytes(16)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sender.fileno()]))])
        # The close that comes last waits, here or at the receiver.
        threading.Thread(target=sender.close, daemon=True).start()
        print("sent", flush=True)
    except (PermissionError, ConnectionError):  # the socket takes no descriptors, or no connection
        kept.append(sender)
        print("refused", flush=True)
    kept += [sock, reader]
sys.stdin.read()
os._exit(0)  # a process that ends does not wait for its sockets
