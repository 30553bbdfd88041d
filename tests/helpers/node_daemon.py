"""A daemon of a host, and the command that reaches it, as `sshd` and `ssh` are.

    python -S -E node_daemon.py serve SOCKET        on the host, until it is killed
    python -S -E node_daemon.py call SOCKET WORDS   standard input and output are those of WORDS

All bytes go through the daemon, so its end cuts off every process that it has started.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress


def pour(source: int, target: int) -> None:
    """Move bytes until there are no more; then nothing more goes to the target."""
    with suppress(OSError):
        while block := os.read(source, 1 << 16):
            while block:
                block = block[os.write(target, block) :]
    with suppress(OSError), socket.socket(fileno=os.dup(target)) as link:
        link.shutdown(socket.SHUT_WR)
    with suppress(OSError):
        os.close(target)


def serve(path: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)
    while True:
        link, _ = listener.accept()
        threading.Thread(target=start, args=(link,), daemon=True).start()


def start(link: socket.socket) -> None:
    line = b""
    while not line.endswith(b"\n"):
        line += link.recv(1)
    pipe = subprocess.PIPE
    process = subprocess.Popen(json.loads(line), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
    number = link.detach()
    threading.Thread(target=pour, args=(number, os.dup(process.stdin.fileno()))).start()
    process.stdin.close()
    pour(process.stdout.fileno(), number)
    process.wait()


def call(path: str, words: list[str]) -> None:
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    link.sendall(json.dumps(words).encode() + b"\n")
    threading.Thread(target=pour, args=(0, os.dup(link.fileno())), daemon=True).start()
    pour(link.fileno(), 1)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        call(sys.argv[2], sys.argv[3:])
