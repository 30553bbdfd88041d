"""The connections of a server: their number, how long each may wait, and which gives way.

In: the protocol of uvicorn and an application. Out: both, with limits. A connection either waits
for a request (its head, then its body) or is being answered. A connection whose next head does not
arrive in time is closed. At the limit, the connection that has waited longest gives way to the next
one, so silent connections lock nobody out. A connection that is being answered never gives way;
some places are kept free of those, so that `/health` responds however many answers are under way.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import cast

from tessera.driver.serve.api_errors import BadRequest, ErrorCode

_HEAD_S = 10.0
"""Seconds from opening a connection, or from an answer, to the head of the next request."""
_MOST = 4096
_LEAST = 32
_KEPT_FREE = 16
_SPARE_FILES = 96
"""Descriptors for everything else: connections being opened or closed, plans being reread."""
_AT_ONCE = 16

_Ends = tuple[object, object]
Message = MutableMapping[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class Dropped(StrEnum):
    """Why the server closed a connection or refused its request."""

    SLOW = "slow"
    GAVE_WAY = "gave_way"
    BUSY = "busy"


@dataclass(slots=True)
class _OpenConnection:
    """A connection. `unsent` is what its client had not read when its time last ran out."""

    transport: asyncio.Transport
    is_gone: bool = False
    requests: int = 0
    unsent: float = inf
    clock: asyncio.TimerHandle | None = None


class Connections:
    """All connections of a server; only the thread of its event loop uses them."""

    def __init__(self, most: int, on_drop: Callable[[Dropped], object]) -> None:
        self.most = most
        self._on_drop = on_drop
        self._waiting: dict[_Ends, _OpenConnection] = {}
        """Waiting connections, in the order in which they began to wait."""
        self._answered: dict[_Ends, _OpenConnection] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._answered)

    def protocol(self) -> type[asyncio.Protocol]:
        """The protocol of uvicorn, whose connections are registered here."""
        from uvicorn.protocols.http.auto import AutoHTTPProtocol

        held = self

        class HeldProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                held.add(cast(asyncio.Transport, transport))
                self._ends = _ends(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                held.remove(self._ends)

        return HeldProtocol

    def limited(self, application: Application) -> Application:
        """The application, with each request attributed to its registered connection."""

        async def limited(scope: Message, receive: Receive, send: Send) -> None:
            ends = scope.get("client"), scope.get("server")
            held = self._waiting.get(ends) or self._answered.get(ends)
            if held is None:
                await application(scope, receive, send)
                return

            async def heard() -> Message:
                message = await receive()
                if message["type"] == "http.request" and not message.get("more_body"):
                    self._answer(ends, held)
                return message

            held.requests += 1
            _stop(held)
            try:
                await application(scope, heard, send)
            finally:
                held.requests -= 1
                if not held.requests and not held.is_gone:  # the next one may have begun
                    self._answered.pop(ends, None)
                    self._wait(ends, held)

        return limited

    def add(self, transport: asyncio.Transport) -> None:
        """Register a new connection."""
        if len(self) >= self.most and self._waiting:
            self._drop(next(iter(self._waiting)), Dropped.GAVE_WAY)
        self._wait(_ends(transport), _OpenConnection(transport))

    def remove(self, ends: _Ends) -> None:
        """Remove a closed connection."""
        held = self._waiting.pop(ends, None) or self._answered.pop(ends, None)
        if held is not None:
            held.is_gone = True
            _stop(held)

    def _wait(self, ends: _Ends, held: _OpenConnection) -> None:
        """Put a connection at the end of the waiting ones."""
        self._waiting.pop(ends, None)
        self._waiting[ends] = held
        held.unsent = inf
        self._start(ends, held)

    def _start(self, ends: _Ends, held: _OpenConnection) -> None:
        held.clock = asyncio.get_running_loop().call_later(_HEAD_S, self._expire, ends, held)

    def _expire(self, ends: _Ends, held: _OpenConnection) -> None:
        """Close a connection, unless its client is still reading what was sent."""
        unsent = held.transport.get_write_buffer_size()
        if 0 < unsent < held.unsent:
            held.unsent = unsent
            self._start(ends, held)
        else:
            self._drop(ends, Dropped.SLOW)

    def _drop(self, ends: _Ends, why: Dropped) -> None:
        held = self._waiting[ends]
        self.remove(ends)
        held.transport.abort()
        self._on_drop(why)

    def _answer(self, ends: _Ends, held: _OpenConnection) -> None:
        """Keep the connection of a complete request from giving way until it is answered."""
        if self._waiting.get(ends) is not held:
            return
        if len(self._answered) >= self.most - _KEPT_FREE:
            self._on_drop(Dropped.BUSY)
            message = f"{len(self._answered)} requests are being answered, and no more may"
            raise BadRequest(message, code=ErrorCode.SERVER_OVERLOADED, retry_s=1)
        self._answered[ends] = self._waiting.pop(ends)


def _stop(held: _OpenConnection) -> None:
    if held.clock is not None:
        held.clock.cancel()


def _ends(transport: asyncio.BaseTransport) -> _Ends:
    """Both addresses of a connection, as the scope of a request has them."""
    there, here = (transport.get_extra_info(name) for name in ("peername", "sockname"))
    return (there and (str(there[0]), int(there[1]))), (here and (str(here[0]), int(here[1])))


def most_connections() -> int:
    """The number of connections that the limit on open files allows, raised as far as it may be."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
    except ImportError:
        return _MOST
    limit, highest = getrlimit(RLIMIT_NOFILE)
    wanted = 2 * _MOST if highest == RLIM_INFINITY else min(2 * _MOST, highest)
    if limit != RLIM_INFINITY and limit < wanted:
        with suppress(OSError, ValueError):
            setrlimit(RLIMIT_NOFILE, (wanted, highest))
        limit = getrlimit(RLIMIT_NOFILE)[0]
    used = 0
    if limit == RLIM_INFINITY:
        return _MOST
    with suppress(OSError):
        used = len(os.listdir("/dev/fd"))
    return max(_LEAST, min(_MOST, limit - used - _SPARE_FILES))


class PacedSocket(socket.socket):
    """A listening socket that gives the loop a few connections a turn.

    Connections that give way to them are closed between turns, so the process does not run out of
    descriptors, which asyncio would log thousands of times.
    """

    _taken = 0

    def accept(self) -> tuple[socket.socket, object]:
        """The next connection; none if this turn has accepted its share."""
        if self._taken >= _AT_ONCE:
            raise BlockingIOError
        if not self._taken:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._taken += 1
        return super().accept()

    def _next_turn(self) -> None:
        self._taken = 0
