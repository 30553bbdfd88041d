"""Strangers, who do not have the token, change nothing: whatever they send, when, and how many."""

from __future__ import annotations

import errno
import json
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest

from tessera.backend.hosts.channel import BadMessage, ControlChannel
from tessera.backend.hosts.messages import FROM_DEVICE
from tessera.backend.transports import proved_links, sockets
from tessera.backend.transports.proved_links import ProvedListener, call_proved, greet
from tessera.backend.transports.sockets import SocketTransport
from tessera.backend.transports.transport import TransportFault, TransportPlace

TOKEN, RUN = "secret", "run"
LIMIT_S = 300.0


class End:
    def __init__(self, name: str) -> None:
        self.notes: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.lost: list[tuple[str, str]] = []
        self.transport = SocketTransport(
            TransportPlace(name=name, token=TOKEN, run=RUN),
            np.zeros(1 << 12, np.uint8),
            lambda peer, note: self.notes.put((peer, note)),
            lambda peer, why: self.lost.append((peer, why)),
        )

    @property
    def port(self) -> int:
        return int(self.transport.address.rpartition(" ")[2])


@pytest.fixture
def ended_threads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Threads that an exception has ended."""
    ended: list[object] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    return ended


@pytest.fixture
def ends(ended_threads: list[object]) -> Iterator[tuple[End, End]]:
    a, b = End("a"), End("b")
    yield a, b
    a.transport.close()
    b.transport.close()
    assert not ended_threads


def _join(a: End, b: End, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Both connect, and each hears the other; something happens while one waits for the other."""
    faults: list[TransportFault] = []

    def join() -> None:
        try:
            b.transport.connect({"a": a.transport.address})
        except TransportFault as fault:
            faults.append(fault)

    joining = threading.Thread(target=join)
    joining.start()
    while not b.transport._expected:
        time.sleep(0.001)
    meanwhile()
    a.transport.connect({"b": b.transport.address})
    joining.join(LIMIT_S)
    assert not faults
    _talk(a, b)


def _talk(a: End, b: End) -> None:
    a.transport.tell("b", b"fine")
    b.transport.tell("a", b"so it is")
    assert b.notes.get(timeout=LIMIT_S) == ("a", b"fine")
    assert a.notes.get(timeout=LIMIT_S) == ("b", b"so it is")
    assert a.lost == b.lost == []


def _line(link: socket.socket) -> dict[str, str]:
    line = b""
    while not line.endswith(b"\n"):
        letter = link.recv(1)
        if not letter:
            raise ConnectionError
        line += letter
    record: dict[str, str] = json.loads(line)
    return record


def _say(link: socket.socket, record: object) -> None:
    link.sendall(json.dumps(record).encode() + b"\n")


def _wrong_proof(link: socket.socket, proof: object = "00") -> None:
    _say(link, {**_line(link), "name": "a", "nonce": "x"})
    _line(link)
    _say(link, {"proof": proof})


def _reflect(link: socket.socket) -> None:
    _say(link, {**_line(link), "name": "a"})
    _say(link, _line(link))


def _replay(link: socket.socket) -> None:
    """What a peer that had the token once sent to somebody else."""
    here, there = socket.socketpair()
    heard: queue.Queue[bytes] = queue.Queue()

    def overhear() -> None:
        for _ in range(2):
            heard.put((json.dumps(_line(there)) + "\n").encode())
            there.sendall(heard.queue[0])

    listening = threading.Thread(target=overhear)
    listening.start()
    with suppress(TransportFault):
        greet(here, "a", TOKEN, is_caller=True, run=RUN)
    listening.join(LIMIT_S)
    here.close()
    there.close()
    _line(link)
    link.sendall(heard.get())
    link.sendall(heard.get())


WAYS: dict[str, Callable[[socket.socket], object]] = {
    "hangs up": lambda link: None,
    "wrong version": lambda link: _say(link, {**_line(link), "name": "a", "version": "9.9"}),
    "another run": lambda link: _say(link, {**_line(link), "name": "a", "run": "x"}),
    "wrong proof": _wrong_proof,
    "proof in other letters": lambda link: _wrong_proof(link, "\u00e9" * 64),
    "proof with half of a letter": lambda link: _wrong_proof(link, "\ud800"),
    "proof that is no text": lambda link: _wrong_proof(link, [[1]]),
    "no proof": lambda link: _wrong_proof(link, None),
    "other protocol": lambda link: _say(link, {"magic": "zzz", "name": "a"}),
    "reflects": _reflect,
    "replays": _replay,
    "its own name": lambda link: _say(link, {**_line(link), "name": "b"}),
    "deep JSON": lambda link: link.sendall(b"[" * 4000 + b"\n"),
    "deep name": lambda link: link.sendall(b'{"name":' + b"[" * 900 + b"]" * 900 + b"}\n"),
    "long number": lambda link: link.sendall(b'{"name":' + b"9" * 4000 + b"}\n"),
    "long line": lambda link: link.sendall(b"x" * 100_000),
    "no text": lambda link: link.sendall(b"\xff\xfe\n"),
}


def _intrude(way: str, *ends: End) -> None:
    for end in ends:
        stranger = socket.create_connection(("127.0.0.1", end.port), timeout=LIMIT_S)
        with stranger, suppress(OSError):  # it may be hung up on before it has said all
            WAYS[way](stranger)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4096):
                pass


@pytest.mark.parametrize("way", WAYS)
def test_a_stranger_changes_nothing(ends: tuple[End, End], way: str) -> None:
    _intrude(way, *ends)
    _join(*ends, meanwhile=lambda: _intrude(way, *ends))
    _intrude(way, *ends)
    _talk(*ends)


def test_a_crowd_of_silent_strangers_keeps_nobody_out(ends: tuple[End, End]) -> None:
    a, b = ends
    crowd = [
        socket.create_connection(("127.0.0.1", end.port), timeout=LIMIT_S)
        for _ in range(2 * proved_links._MOST_UNPROVED)
        for end in ends
    ]
    _join(a, b)
    for end in ends:
        assert len(end.transport._listener.strangers()) <= proved_links._MOST_UNPROVED
    for stranger in crowd:
        stranger.close()
    _talk(a, b)


def test_a_greeting_has_a_limit_however_slowly_it_comes() -> None:
    here, there = socket.socketpair()
    over = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            while not over.wait(0.001):
                there.sendall(b" ")

    dripping = threading.Thread(target=drip)
    dripping.start()
    with pytest.raises(TimeoutError, match="in time"):
        greet(here, "a", TOKEN, is_caller=False, run=RUN, limit_s=0.05)
    over.set()
    dripping.join(LIMIT_S)
    here.close()
    there.close()


def test_what_comes_behind_a_greeting_is_left_for_others() -> None:
    here, there = socket.socketpair()
    other = threading.Thread(
        target=lambda: (
            greet(there, "b", TOKEN, is_caller=True, run=RUN),
            there.sendall(b"frame\nframe"),
        )
    )
    other.start()
    assert greet(here, "a", TOKEN, is_caller=False, run=RUN) == "b"
    other.join(LIMIT_S)
    assert here.recv(100) == b"frame\nframe"
    here.close()
    there.close()


def test_a_peer_that_had_to_give_way_calls_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        calls = []

        def answer() -> None:
            for _ in range(3):
                link, _ = listener.accept()
                calls.append(link)
                if len(calls) < 3:
                    link.close()
            greet(calls[-1], "b", TOKEN, is_caller=False, run=RUN)

        answering = threading.Thread(target=answer)
        answering.start()
        peer, link = call_proved(
            listener.getsockname(), "a", TOKEN, run=RUN, deadline_s=time.monotonic() + LIMIT_S
        )
        answering.join(LIMIT_S)
    assert (peer, len(calls)) == ("b", 3)
    link.close()
    calls[-1].close()


def test_a_process_without_descriptors_listens_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proved_links, "_PAUSE_S", 0.0)
    proved: queue.Queue[str] = queue.Queue()
    listener = ProvedListener("127.0.0.1")
    plain, failures = listener._listener, [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED]

    def accept() -> tuple[socket.socket, object]:
        if failures:
            raise OSError(failures.pop(), "too many")
        return plain.accept()

    listener._listener = SimpleNamespace(  # type: ignore[assignment]
        accept=accept, shutdown=plain.shutdown, close=plain.close
    )
    listener.start("b", TOKEN, RUN, lambda peer, link: (proved.put(peer), link.close()))
    _, link = call_proved(
        ("127.0.0.1", listener.port), "a", TOKEN, run=RUN, deadline_s=time.monotonic() + LIMIT_S
    )
    assert proved.get(timeout=LIMIT_S) == "a"
    assert not failures
    link.close()
    listener.close()


def test_what_a_stranger_sends_is_no_sign_of_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer, stranger = (socket.create_connection(listener.getsockname()) for _ in range(2))
        here, door = listener.accept()[0], listener.accept()[0]
        links = (peer, stranger, here, door)
        recent, long_ago = (0,) * 21, (10**6,) * 21

        def facts(link: socket.socket) -> tuple[int, ...]:
            return recent if link.getpeername() == stranger.getsockname() else long_ago

        monkeypatch.setattr(sockets, "_facts", facts)
        assert sockets._is_heard(here, 1.0, ())
        assert not sockets._is_heard(here, 1.0, {door.fileno()})
        for link in links:
            link.close()


def test_a_deep_record_ends_the_channel_and_no_thread() -> None:
    here, there = socket.socketpair()
    text = b'{"kind":"hello","more":' + b"[" * 100_000
    there.sendall(struct.pack("<II", len(text), 0) + text)
    with pytest.raises(BadMessage, match="recursion depth"):
        ControlChannel(here.fileno(), here.fileno(), FROM_DEVICE).receive()
    here.close()
    there.close()
