"""Ids of requests: in the response, in errors, and in the log.

In: an application. Out: the same, whose requests have ids: the client's own `X-Request-Id`, if it
is a short word, or else a random one. Every response has it as a header. With `logs`, every request
is a line of the log: its id, what was asked for, the status, and how long it took.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

from tessera.driver.serve.connections import Application, Message, Receive, Send

_HEADER = b"x-request-id"
_WORD = re.compile(rb"[\w.:/+=@-]{1,128}")
_log = logging.getLogger("tessera.requests")


def request_ids(application: Application, *, logs: bool) -> Application:
    """The application, with an id for every request."""

    async def identified(scope: Message, receive: Receive, send: Send) -> None:
        headers = cast("Iterable[tuple[bytes, bytes]]", scope.get("headers", ()))
        given = next((value for name, value in headers if name.lower() == _HEADER), b"")
        number = given.decode() if _WORD.fullmatch(given) else f"req_{secrets.token_hex(12)}"
        scope["tessera.request_id"] = number
        began_ns, status = time.monotonic_ns(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = cast("int", message["status"])
                known = cast("Iterable[tuple[bytes, bytes]]", message.get("headers", ()))
                message["headers"] = [*known, (_HEADER, number.encode())]
            await send(message)

        try:
            await application(scope, receive, sent)
        finally:
            if logs:
                took_s = (time.monotonic_ns() - began_ns) / 1e9
                asked = f"{scope.get('method')} {str(scope.get('path'))[:80]!r}"
                _log.info("%s %s %d %.3f s", number, asked, status, took_s)

    return identified


@contextmanager
def request_log(*, logs: bool) -> Iterator[None]:
    """Write the lines of requests to standard error inside this context, if they are wanted."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    if logs:
        _log.addHandler(handler)
        _log.setLevel(logging.INFO)
        _log.propagate = False
    try:
        yield
    finally:
        _log.removeHandler(handler)
