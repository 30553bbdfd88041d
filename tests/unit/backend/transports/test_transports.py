"""Every transport: bytes and notes in order, and who may not take part."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from contextlib import suppress

import numpy as np
import pytest

from tessera.backend.transports import proved_links
from tessera.backend.transports.nixl import NixlTransport
from tessera.backend.transports.shared_memory import SharedMemoryTransport, shared_window
from tessera.backend.transports.sockets import SocketTransport, _PeerSocket
from tessera.backend.transports.transport import (
    PlannedPut,
    Transport,
    TransportFault,
    TransportPlace,
)
from tests.helpers.extras import need_nixl
from tests.helpers.in_process_transport import InProcessTransport

TOKEN, RUN = "secret", "run"
LIMIT_S = 300.0


class End:
    """One end: its window, and what it hears."""

    def __init__(self, kind: str, name: str, hub: dict, **options: str) -> None:
        self.window = np.zeros(1 << 20, np.uint8)
        self.outgoing = np.zeros(1 << 20, np.uint8)
        self.notes: queue.Queue = queue.Queue()
        self.lost: queue.Queue = queue.Queue()
        self.cut: set[str] = set()
        hear = lambda peer, note: self.notes.put((peer, note, self.window[:4].copy()))  # noqa: E731

        def lose(peer: str, why: str, *, is_cut: bool = False) -> None:
            self.lost.put((peer, why))
            self.cut |= {peer} if is_cut else set()

        host = name if kind in ("nixl", "other hosts") else ""
        given = {"token": TOKEN, "run": RUN, "host": host, **options}
        place = TransportPlace(name=name, **given)
        self.transport: Transport
        if kind == "in process":
            self.transport = InProcessTransport(hub, name, self.window, hear)
        elif kind == "nixl":
            self.window, descriptor = shared_window(1 << 20)
            self.transport = NixlTransport(
                place, self.window, descriptor, self.outgoing, hear, lose
            )
        elif kind == "sockets":
            self.transport = SocketTransport(place, self.window, hear, lose)
        else:
            self.window, descriptor = shared_window(1 << 20)
            self.transport = SharedMemoryTransport(
                place, self.window, descriptor, self.outgoing, hear, lose
            )


def joined(kind: str, *, bind: str = "127.0.0.1") -> tuple[End, End]:
    hub: dict = {}
    more = {} if kind == "in process" else {"bind": bind}
    a, b = End(kind, "a", hub, **more), End(kind, "b", hub, **more)
    puts = [PlannedPut("b", 0, a.outgoing[: 1 + number * 997]) for number in range(1, 50)]
    joining = threading.Thread(target=b.transport.connect, args=({"a": a.transport.address},))
    joining.start()
    a.transport.connect({"b": b.transport.address}, puts)
    joining.join(LIMIT_S)
    return a, b


KINDS = ["in process", "sockets", "shared memory", "other hosts", "nixl"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_note_comes_after_its_bytes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "nixl":
        need_nixl()
        monkeypatch.setenv("UCX_TLS", "tcp")
    a, b = joined(kind)
    try:
        for number in range(1, 50):
            content = a.outgoing[: 1 + number * 997]
            content[:] = number
            a.transport.put("b", 0, content, b"%d" % number)
            b.transport.tell("a", b"seen %d" % number)
            peer, note, seen = b.notes.get(timeout=LIMIT_S)
            assert (peer, note) == ("a", b"%d" % number)
            assert seen[0] == number
            assert (b.window[: len(content)] == number).all()
            assert a.notes.get(timeout=LIMIT_S)[:2] == ("b", b"seen %d" % number)
    finally:
        a.transport.close()
        b.transport.close()
    if kind != "in process":
        assert a.lost.empty()  # who closes is not told that it has


def test_ipv6() -> None:
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    a, b = joined("sockets", bind="::1")
    a.transport.put("b", 8, np.arange(4, dtype=np.uint8), b"x")
    assert b.notes.get(timeout=LIMIT_S)[1] == b"x"
    assert b.window[8:12].tolist() == [0, 1, 2, 3]
    a.transport.close()
    b.transport.close()


def test_who_is_gone_is_reported_once() -> None:
    a, b = joined("sockets")
    b.transport.close()
    assert a.lost.get(timeout=LIMIT_S)[0] == "b"
    a.transport.close()
    assert a.lost.empty()


@pytest.mark.parametrize(
    ("options", "why"),
    [({"token": "other"}, "does not have the token"), ({"run": "other"}, "another run")],
)
def test_a_wrong_token_or_run_is_refused(options: dict[str, str], why: str) -> None:
    a, b = End("sockets", "a", {}), End("sockets", "b", {}, **options)
    with pytest.raises(TransportFault, match=why) as caught:
        a.transport.connect({"b": b.transport.address})
    assert caught.value.peer == "b"
    a.transport.close()
    b.transport.close()


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socket.socketpair()
    monkeypatch.setattr(proved_links, "VERSION", "99.0")
    heard: queue.Queue = queue.Queue()

    def other() -> None:
        try:
            proved_links.greet(there, "b", TOKEN, is_caller=False, run=RUN)
        except TransportFault as fault:
            heard.put(fault.why)

    here.sendall(b'{"magic": "tessera-transport/1", "version": "0", "name": "a", "nonce": "1"}\n')
    other()
    assert "it has version 0 of Tessera, and this is 99.0" in heard.get(timeout=LIMIT_S)
    here.close()
    there.close()


def test_strangers_change_nothing() -> None:
    a, b = joined("sockets")
    host, _, port = a.transport.address.rpartition(" ")
    for words in (b"", b"\n", b"GET / HTTP/1.1\n", b"x" * 9000, b"[1]\n", b"\xff\xfe\n"):
        stranger = socket.create_connection((host, int(port)), timeout=LIMIT_S)
        with stranger, suppress(OSError):  # it may be hung up on before it has said all
            stranger.sendall(words)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(1000):
                pass
    b.transport.put("a", 0, np.ones(3, np.uint8), b"fine")
    assert a.notes.get(timeout=LIMIT_S)[1] == b"fine"
    assert a.lost.empty()
    a.transport.close()
    b.transport.close()


def test_bytes_outside_of_the_window_end_the_connection() -> None:
    a, b = joined("sockets")
    a.transport.put("b", (1 << 20) - 2, np.ones(3, np.uint8), b"x")
    assert "outside of the window" in b.lost.get(timeout=LIMIT_S)[1]
    assert not b.window.any()
    a.transport.close()
    b.transport.close()


def test_a_peer_that_does_not_read_is_not_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        way = _PeerSocket(link)
        for _ in range(20):  # its system acknowledges, whatever it does itself
            link.send(b"beat")
            assert not way.is_silent(0.05)
            time.sleep(0.005)
        link.close()
        other.close()
