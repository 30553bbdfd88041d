"""Connections whose ends have proved the token: the listener and the caller.

In: an address, a name, the token. Out: sockets of peers that have proved it. A caller that has not
proved it is a stranger: it holds a place in a short queue for at most a few seconds, learns nothing
about other callers, and is not reported. If the queue is full, the caller that has waited longest
is dropped, so strangers cannot keep a peer out: a peer needs one round trip, and calls again if it
was dropped.

In a greeting each end sends a line with its name, its version and a nonce, and answers the other's
nonce with an HMAC under the token. The token itself is never sent. Nothing is encrypted: a private
network is part of the contract.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from tessera.backend.transports.transport import TransportFault
from tessera.ir.version import __version__ as VERSION

_MOST_UNPROVED = 64
_BACKLOG = 1024
_PAUSE_S = 0.05
_LEAST_S = 0.1

Welcome = Callable[[str, socket.socket], object]
"""Called by a thread of the listener, with the name of a peer and its connection."""


class ProvedListener:
    """Listens at an address, and welcomes callers that have proved the token."""

    def __init__(self, bind: str) -> None:
        """Listen; raises `OSError` if that fails. Callers are answered after `start`."""
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._listener.bind((bind, 0))
            self._listener.listen(_BACKLOG)
        except OSError:
            self._listener.close()
            raise
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._unproved: dict[socket.socket, None] = {}
        self._is_closed = False

    def start(self, name: str, token: str, run: str, welcome: Welcome) -> None:
        """Begin to accept calls."""
        self._name, self._token, self._run = name, token, run
        self._welcome = welcome
        threading.Thread(target=self._accept, daemon=True).start()

    def strangers(self) -> set[int]:
        """The descriptors of connections that have not yet proved the token."""
        with self._lock:
            return {link.fileno() for link in self._unproved}

    def close(self) -> None:
        """Accept no more calls."""
        self._is_closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        while self._drop_oldest():
            pass

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                link, _ = self._listener.accept()
            except OSError:  # closed, or the process has no descriptors left
                self._drop_oldest()
                time.sleep(0.0 if self._is_closed else _PAUSE_S)
                continue
            with self._lock:
                self._unproved[link] = None
                is_crowded = len(self._unproved) > _MOST_UNPROVED
            if is_crowded:
                self._drop_oldest()
            try:
                threading.Thread(target=self._judge, args=(link,), daemon=True).start()
            except RuntimeError:  # the process has no threads left
                self._leave(link)
                link.close()

    def _judge(self, link: socket.socket) -> None:
        try:
            peer = greet(link, self._name, self._token, is_caller=False, run=self._run)
        except OSError:
            self._leave(link)
            link.close()
            return
        if self._leave(link) and not self._is_closed:
            self._welcome(peer, _freed(link))
        else:
            link.close()

    def _leave(self, link: socket.socket) -> bool:
        """Take a connection out of the queue; False if it was dropped."""
        with self._lock:
            was_there = link in self._unproved
            self._unproved.pop(link, None)
            return was_there

    def _drop_oldest(self) -> bool:
        """Drop the caller that has waited longest; its thread closes the connection."""
        with self._lock:
            oldest = next(iter(self._unproved), None)
            if oldest is None:
                return False
            del self._unproved[oldest]
        with suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)
        return True


def call_proved(
    address: tuple[str, int], name: str, token: str, *, run: str, deadline_s: float
) -> tuple[str, socket.socket]:
    """The name of the listener, and the connection; calls again until the deadline.

    Raises `TransportFault` if the listener is not a peer, and `OSError` if it has not answered by
    `deadline_s` of `time.monotonic()`.
    """
    while True:
        # Longer than the listener waits, so that the listener hangs up first.
        left_s = max(_LEAST_S, min(2 * GREET_S, deadline_s - time.monotonic()))
        try:
            link = socket.create_connection(address, timeout=left_s)
            try:
                peer = greet(link, name, token, is_caller=True, run=run, limit_s=left_s)
            except BaseException:
                link.close()
                raise
        except TransportFault:
            raise
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_PAUSE_S)
        else:
            return peer, _freed(link)


def _freed(link: socket.socket) -> socket.socket:
    """The connection without the time limit of its greeting, set up for small records."""
    link.settimeout(None)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


_MAGIC = "tessera-transport/1"
_SHORTEST_S = 1e-3
_LONGEST_LINE = 4096
_STRANGER = "a stranger"
GREET_S = 5.0
"""Seconds for a whole greeting, no matter how its bytes arrive."""


def greet(
    link: socket.socket,
    name: str,
    token: str,
    *,
    is_caller: bool,
    run: str,
    limit_s: float = GREET_S,
) -> str:
    """The name of the peer, once both ends have proved the token.

    Ends of another `run` are strangers. A fault names no peer, since a stranger can call itself
    anything.
    """
    deadline_s = time.monotonic() + limit_s
    nonce = secrets.token_hex(16)
    _send(link, {"magic": _MAGIC, "version": VERSION, "name": name, "nonce": nonce, "run": run})
    theirs = _receive(link, deadline_s)
    peer, other = theirs.get("name", ""), theirs.get("nonce", "")
    if theirs.get("magic") != _MAGIC:
        raise TransportFault(_STRANGER, "it does not speak this protocol")
    if theirs.get("version") != VERSION:
        version = str(theirs.get("version"))[:40]
        raise TransportFault(
            _STRANGER, f"it has version {version} of Tessera, and this is {VERSION}"
        )
    if theirs.get("run") != run:
        raise TransportFault(_STRANGER, "it takes part in another run")
    _send(link, {"proof": _proof(token, name, peer, other, is_caller=is_caller)})
    wanted = _proof(token, peer, name, nonce, is_caller=not is_caller)
    given = _receive(link, deadline_s).get("proof", "")
    # As bytes, since `compare_digest` does not accept non-ASCII strings.
    if not hmac.compare_digest(given.encode(errors="replace"), wanted.encode()):
        raise TransportFault(_STRANGER, "it does not have the token of this run")
    return peer


def _proof(token: str, prover: str, judge: str, nonce: str, *, is_caller: bool) -> str:
    text = json.dumps([_MAGIC, prover, judge, nonce, is_caller])
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()


def _send(link: socket.socket, record: dict[str, str]) -> None:
    link.sendall(json.dumps(record).encode() + b"\n")


def _receive(link: socket.socket, deadline_s: float) -> dict[str, str]:
    line = b""
    while not line.endswith(b"\n"):
        left_s = deadline_s - time.monotonic()
        link.settimeout(max(left_s, _SHORTEST_S))
        try:
            if left_s <= 0:
                raise TimeoutError
            # Bytes after the line are not part of the greeting.
            seen = link.recv(_LONGEST_LINE, socket.MSG_PEEK)
            line += link.recv(seen.find(b"\n") + 1 or len(seen))
        except TimeoutError:
            raise TimeoutError("it has not said in time who it is") from None
        if not seen or len(line) > _LONGEST_LINE:
            raise ConnectionError("it hung up before it said who it is")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not all(isinstance(v, str) for v in record.values()):
        raise TransportFault(_STRANGER, "it does not speak this protocol")
    return record
