#!/usr/bin/env python3
"""Behaves like nvidia-cuda-mps-control, for test_domains.sh. With -f it is the control daemon: it makes the socket `control`
in CUDA_MPS_PIPE_DIRECTORY and starts a server, here a process that sleeps. Without -f it passes its standard input on to
the daemon. The file `mode` beside this program says how it misbehaves; `starts` and `heard` record what happened."""
import os
import signal
import socket
import subprocess
import sys

beside = os.path.dirname(os.path.abspath(__file__))
path = os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control"


def note(name, text):
    with open(f"{beside}/{name}", "a", encoding="utf-8") as file:
        file.write(text + "\n")


def serve(mode):
    # In a session of its own: a signal to a process group does not reach it.
    server = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    words = [str(os.getpid()), str(server.pid), str(os.getuid()), os.environ["CUDA_MPS_PIPE_DIRECTORY"]]
    note("starts", " ".join(words + [os.environ["CUDA_MPS_LOG_DIRECTORY"], os.environ.get("LEAKED", "-")]))
    if mode == "fail":
        sys.exit(3)
    if mode == "silent":
        signal.pause()
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(path)
    sock.listen()
    while True:
        heard = sock.accept()[0].recv(100).decode().strip()
        note("heard", heard)
        if heard == "quit" and mode != "deaf":
            server.kill()
            sys.exit(0)


def ask():
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(path)
    sock.send(sys.stdin.read().encode())


if sys.argv[1:] == ["-f"]:
    with open(f"{beside}/mode", encoding="utf-8") as said:
        serve(said.read().strip())
else:
    ask()
