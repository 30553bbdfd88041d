"""The transport between processes, of one host or several: TCP, one connection per pair.

In: a window, the address to listen at, a token. Out: a `Transport`.

A frame is a head (kind, length of the note, offset, size), the note, the bytes. The thread of a
connection reads the bytes into the window, and then delivers the note. Every end sends a beat at
intervals, so that there is always something to acknowledge. If the other host's system acknowledges
nothing, and nothing else arrives from it, the cable is cut (`TCP_INFO`). A busy or stopped process
does not count as a cut, because its system still acknowledges. Nor does a slow link: bytes keep
arriving over it, and after a loss this system itself may wait before it sends again.

Source: Linux, `struct tcp_info`.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import numpy as np

from tessera.backend.transports.proved_links import ProvedListener, call_proved
from tessera.backend.transports.transport import (
    LONGEST_NOTE,
    Hear,
    Lose,
    PlannedPut,
    Transport,
    TransportFault,
    TransportPlace,
    WindowBytes,
)

_HEAD = struct.Struct("<BHQQ")
_PUT, _NOTE, _BEAT = 1, 2, 3
_CONNECT_S = 10.0
_EARLY_S = 5.0
_SAYS_WHY_S = 2.0
_INFO = struct.Struct("@8B13I")
_UNACKED, _DATA_SENT, _DATA_RECEIVED, _ACK_RECEIVED = 12, 17, 19, 20
_TICK_S = 0.01
"""Seconds; more than the error of the system's clock."""


class _PeerSocket:
    """A connection to a peer."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.sending = threading.Lock()
        self.why = ""
        """Why the connection was given up; empty while it is in use."""
        self._heard_s = 0.0
        self._tried_s: float | None = None

    def is_silent(self, limit_s: float, strangers: Collection[int] = ()) -> bool:
        """Whether nothing has arrived for `limit_s` seconds, although something was sent since.

        Bytes over the descriptors of `strangers` do not count.
        """
        facts, now_s = _facts(self.link), time.monotonic()
        if not facts:
            return False
        heard_s = now_s - min(facts[_DATA_RECEIVED], facts[_ACK_RECEIVED]) / 1000
        sent_s = now_s - facts[_DATA_SENT] / 1000
        if not facts[_UNACKED] or heard_s > self._heard_s + 2 * _TICK_S:
            self._heard_s, self._tried_s = heard_s, None
        if facts[_UNACKED] and self._tried_s is None and sent_s > self._heard_s + _TICK_S:
            self._tried_s = sent_s
        if self._tried_s is None or now_s - self._tried_s <= limit_s / 2:
            return False
        if now_s - self._heard_s <= limit_s:
            return False
        if _is_heard(self.link, limit_s, strangers):
            self._heard_s, self._tried_s = now_s, None
        return self._tried_s is not None


class SocketTransport:
    """TCP connections to the peers."""

    def __init__(self, place: TransportPlace, window: WindowBytes, hear: Hear, lose: Lose) -> None:
        self._place = place
        self._name = place.name
        self._window = window.data
        self._hear, self._lose = hear, lose
        self._ways: dict[str, _PeerSocket] = {}
        self._changed = threading.Condition()
        self._expected: set[str] = set()
        self._is_closed = False
        self._listener = ProvedListener(place.bind)
        self._listener.start(place.name, place.token, place.run, self._welcome)

    @property
    def address(self) -> str:
        """The text `HOST PORT`; separated by a space, since an IPv6 address has colons."""
        return f"{self._place.bind} {self._listener.port}"

    def connect(self, peers: Mapping[str, str], puts: Sequence[PlannedPut] = ()) -> None:
        """Call the peers whose names sort later, and wait for calls of the others."""
        deadline = time.monotonic() + _CONNECT_S
        with self._changed:
            self._expected = {peer for peer in peers if peer < self._name}
            self._changed.notify_all()
        for peer, address in sorted(peers.items()):
            if peer > self._name:
                self._call(peer, address, deadline)
        with self._changed:
            while missing := sorted(self._expected - self._ways.keys()):
                left = deadline - time.monotonic()
                if left + _SAYS_WHY_S <= 0:  # a failing caller knows the reason better
                    raise TransportFault(missing[0], f"it has not called within {_CONNECT_S:.0f} s")
                self._changed.wait(left + _SAYS_WHY_S)
        threading.Thread(target=self._beat, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()

    def _call(self, peer: str, address: str, deadline: float) -> None:
        host, _, port = address.rpartition(" ")
        try:
            known, link = call_proved(
                (host, int(port)),
                self._name,
                self._place.token,
                run=self._place.run,
                deadline_s=deadline,
            )
        except TransportFault as fault:
            raise TransportFault(peer, fault.why) from None
        except OSError as problem:
            why = (problem.strerror or str(problem)).lower()
            raise TransportFault(peer, f"`{host}` port {port}: {why}") from None
        if known != peer:
            link.close()
            raise TransportFault(peer, f"`{known}` answers in its place")
        self._join(peer, link)

    def _welcome(self, peer: str, link: socket.socket) -> None:
        """Join a caller, which may call before it is expected."""
        with self._changed:
            is_expected = self._changed.wait_for(lambda: peer in self._expected, _EARLY_S)
        if is_expected:
            self._join(peer, link)
        else:
            link.close()

    def _join(self, peer: str, link: socket.socket) -> None:
        way = _PeerSocket(link)
        with self._changed:
            if peer in self._ways or self._is_closed:
                link.close()
                return
            self._ways[peer] = way
            self._changed.notify_all()
        threading.Thread(target=self._listen_to, args=(peer, way), daemon=True).start()

    def _listen_to(self, peer: str, way: _PeerSocket) -> None:
        link = way.link
        head = memoryview(bytearray(_HEAD.size))
        why = "it hung up"
        try:
            while _read(link, head):
                kind, length, offset, size = _HEAD.unpack(head)
                note = memoryview(bytearray(length))
                if length > LONGEST_NOTE or offset + size > len(self._window):
                    why = "it put bytes outside of the window"
                    break
                if not _read(link, note) or not _read(link, self._window[offset : offset + size]):
                    break
                if kind != _BEAT:
                    self._hear(peer, bytes(note))
        except OSError as problem:
            why = (problem.strerror or str(problem)).lower()
        if not self._is_closed and not way.why:
            self._lose(peer, why)

    def put(self, peer: str, offset: int, content: WindowBytes, note: bytes) -> None:
        """Send the bytes after their note; the peer hears the note once it has all bytes."""
        self._send(peer, _HEAD.pack(_PUT, len(note), offset, content.nbytes) + note, content)

    def tell(self, peer: str, note: bytes) -> None:
        """Send a note."""
        self._send(peer, _HEAD.pack(_NOTE, len(note), 0, 0) + note, None)

    def _send(self, peer: str, head: bytes, content: WindowBytes | None) -> None:
        way = self._ways[peer]
        with way.sending:
            try:
                way.link.sendall(head)
                if content is not None:
                    way.link.sendall(np.ascontiguousarray(content).data)
            except OSError:
                if way.why:
                    return  # it was given up, and `lose` has reported it
                raise

    def _beat(self) -> None:
        beat = _HEAD.pack(_BEAT, 0, 0, 0)
        while not self._is_closed:
            for way in list(self._ways.values()):
                # Bytes that are being sent serve as a beat.
                if way.sending.acquire(blocking=False):
                    try:
                        with suppress(OSError):
                            way.link.sendall(beat)
                    finally:
                        way.sending.release()
            time.sleep(self._place.beat_s)

    def _watch(self) -> None:
        """Give up peers whose link is cut."""
        cut_s = self._place.cut_s
        while not self._is_closed:
            time.sleep(min(self._place.beat_s, cut_s / 8))
            for peer, way in list(self._ways.items()):
                try:
                    is_silent = not way.why and way.is_silent(cut_s, self._listener.strangers())
                except OSError:
                    continue  # its listening thread reports it
                if is_silent and not self._is_closed:
                    way.why = f"nothing was acknowledged for {cut_s:.1f} s: the link is cut"
                    self._lose(peer, way.why, is_cut=True)
                    with suppress(OSError):
                        way.link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        self._listener.close()
        for way in self._ways.values():
            with suppress(OSError):
                way.link.shutdown(socket.SHUT_RDWR)
            way.link.close()


def _facts(link: socket.socket) -> tuple[int, ...]:
    """`TCP_INFO` of a connection; empty if the system has none."""
    kind = getattr(socket, "TCP_INFO", None)
    told = b"" if kind is None else link.getsockopt(socket.IPPROTO_TCP, kind, _INFO.size)
    return _INFO.unpack(told) if len(told) == _INFO.size else ()


def _is_heard(link: socket.socket, limit_s: float, strangers: Collection[int]) -> bool:
    """Whether bytes come from the host of a peer over any connection of this process.

    Another connection may carry the bytes (NIXL), and beats then wait behind them.
    """
    host = link.getpeername()[0]
    for descriptor in {int(name) for name in os.listdir("/proc/self/fd")}.difference(strangers):
        with suppress(OSError), _opened(descriptor) as other:
            is_near = other.family == link.family and other.getpeername()[0] == host
            facts = _facts(other) if is_near else ()
            if facts and min(facts[_DATA_RECEIVED], facts[_ACK_RECEIVED]) < limit_s * 1000:
                return True
    return False


def _opened(descriptor: int) -> socket.socket:
    """A descriptor of this process as a socket; raises `OSError` if it is not a socket."""
    own = os.dup(descriptor)
    try:
        return socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise


def _read(link: socket.socket, into: memoryview) -> bool:
    """Fill a buffer; False if the other end has hung up."""
    at = 0
    while at < len(into):
        count = link.recv_into(into[at:])
        if not count:
            return False
        at += count
    return True


_: type[Transport] = SocketTransport
