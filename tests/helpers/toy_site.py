"""A server over a toy runtime, in this process, and a client for it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from tessera.driver.serve import engine as engine_module
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.metrics import Metrics
from tessera.driver.serve.run_server import open_socket, server_config
from tessera.driver.serve.server import CompletionServer, ServerOptions, text_model
from tests.helpers.toy_runtime import CONTEXT, ToyRuntime

KEY = "secret-key"
LIMIT_S = 300.0


class Letters:
    """Token n is the letter chr(48 + n)."""

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        return [ord(letter) - 48 for letter in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(48 + token) for token in tokens)

    def piece(self, token: int) -> bytes:
        return chr(48 + token).encode()

    def special_tokens(self) -> Collection[int]:
        return ()


class Site:
    """A server that runs."""

    def __init__(self, port: int, engine: Engine, metrics: Metrics) -> None:
        self.port = port
        self.engine = engine
        self.metrics = metrics

    def open(self, words: bytes = b"") -> socket.socket:
        """A connection, over which something was sent."""
        link = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)
        link.sendall(words)
        return link

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        key: str | None = KEY,
        authorization: str | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        sent = authorization or (key and f"Bearer {key}")
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, raw, {"Authorization": sent} if sent else {})
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        return reply.status, {k.lower(): v for k, v in reply.getheaders()}, content

    def complete(self, **body: Any) -> tuple[int, dict[str, Any]]:
        status, _, content = self.ask("POST", "/v1/completions", body)
        return status, json.loads(content)


@contextmanager
def toy_site(
    *,
    runtime: type[ToyRuntime] = ToyRuntime,
    most: int = 100,
    max_waiting: int = 4,
    key: str | None = KEY,
    deadline_s: float | None = None,
    **toy: Any,
) -> Iterator[Site]:
    """A site with at most so many connections."""
    patch = pytest.MonkeyPatch()
    patch.setattr(engine_module, "Runtime", runtime)
    metrics = Metrics()
    engine = Engine(
        "toy.tsp",
        steps={"context": CONTEXT},
        max_waiting=max_waiting,
        rows=2,
        on_end=metrics.end,
        **toy,
    )
    options = ServerOptions(keys=(key,) if key else (), most_bytes=2000, deadline_s=deadline_s)
    served = text_model(engine, "toy", Letters())
    with serving(CompletionServer(engine, options, served, metrics), engine, most) as made:
        yield made
    engine.close()
    patch.undo()


@contextmanager
def serving(server: CompletionServer, engine: Engine, most: int = 100) -> Iterator[Site]:
    """A server that runs in a thread."""
    with open_socket("127.0.0.1", 0) as listening:
        running = uvicorn.Server(server_config(server, most))
        thread = threading.Thread(target=running.run, args=([listening],))
        thread.start()
        try:
            yield Site(listening.getsockname()[1], engine, server.metrics)
        finally:
            running.should_exit = True
            thread.join(LIMIT_S)
