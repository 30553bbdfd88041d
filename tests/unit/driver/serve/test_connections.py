"""Connections that say nothing, or say it slowly, keep nobody from a server and fill no log."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tessera.driver.serve import connections as connections_module
from tessera.driver.serve import counted_log
from tessera.driver.serve import server as server_module
from tessera.driver.serve.connections import Connections, Dropped, PacedSocket, most_connections
from tessera.driver.serve.counted_log import CountedLog
from tests.helpers.corpus import ROOT
from tests.helpers.toy_runtime import ToyRuntime, answer

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from tests.helpers.toy_site import KEY, LIMIT_S, Site, toy_site

HEAD = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
MOST = 20


class Gated(ToyRuntime):
    """Steps wait until they are let go."""

    go = threading.Event()

    def _step(self, *given: Any) -> Any:
        assert self.go.wait(LIMIT_S)
        return super()._step(*given)


@pytest.fixture
def site() -> Iterator[Site]:
    Gated.go.set()
    with toy_site(runtime=Gated, most=MOST) as made:
        yield made
        Gated.go.set()


def _is_closed(link: socket.socket) -> bool:
    """Waits until the other end hangs up."""
    with link, suppress(ConnectionError):
        while link.recv(4096):
            pass
    return True


def _dropped(site: Site, why: Dropped) -> int:
    return site.metrics._dropped.get(why, 0)


HALVES = {
    "nothing": b"",
    "half of a head": b"GET /hea",
    "half of a body": f"{HEAD}Content-Length: 400\r\n\r\n{{".encode(),
    "a body without a key": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9"
    + b"\r\n" * 2,
    "an answer before": b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("words", HALVES.values(), ids=HALVES)
def test_silent_connections_give_way(site: Site, words: bytes) -> None:
    crowd = []
    for _ in range(3 * MOST):
        crowd.append(site.open(words))
    assert site.ask("GET", "/health", key=None)[0] == 200
    status, value = site.complete(prompt=[3], max_tokens=5, temperature=0)
    assert (status, value["choices"][0]["token_ids"]) == (200, answer([3], 5))
    assert _dropped(site, Dropped.GAVE_WAY)
    assert len(site.metrics.connections) <= MOST
    text = site.ask("GET", "/metrics")[2].decode()
    assert 'tessera_dropped_total{why="gave_way"}' in text
    for link in crowd:
        link.close()


@pytest.mark.parametrize("words", HALVES.values(), ids=HALVES)
def test_a_head_has_a_time_limit(site: Site, words: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "_HEAD_S", 0.1)
    monkeypatch.setattr(server_module, "_BODY_S", 0.1)
    assert _is_closed(site.open(words))
    assert _dropped(site, Dropped.SLOW) == 1


@pytest.mark.parametrize("words", HALVES.values(), ids=HALVES)
def test_letter_by_letter_is_no_faster(
    site: Site, words: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_module, "_HEAD_S", 0.1)
    monkeypatch.setattr(server_module, "_BODY_S", 0.1)
    link, over = site.open(words), threading.Event()

    def drip() -> None:
        with suppress(OSError):
            while not over.wait(0.01):
                link.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    assert _is_closed(link)
    over.set()
    dripping.join(LIMIT_S)


def test_answers_never_give_way_and_leave_room_for_health(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_module, "_HEAD_S", 0.05)
    most = MOST - connections_module._KEPT_FREE
    Gated.go.clear()
    body = json.dumps({"prompt": [3], "max_tokens": 5, "temperature": 0}).encode()
    request = f"{HEAD}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    answered = [site.open(request) for _ in range(most)]
    while len(cast(Connections, site.metrics.connections)._answered) < most:
        threading.Event().wait(0.001)
    status, headers, content = site.ask("POST", "/v1/completions", body)
    assert (status, json.loads(content)["error"]["code"]) == (503, "server_overloaded")
    assert headers["retry-after"] == "1"
    assert _dropped(site, Dropped.BUSY) == 1
    crowd = [site.open(b"GET") for _ in range(2 * MOST)]
    assert site.ask("GET", "/health", key=None)[0] == 200
    for link in crowd:
        assert _is_closed(link)
    Gated.go.set()
    for link in answered:
        with link, link.makefile("rb") as reply:
            assert b"200 OK" in reply.readline()
            assert json.loads(reply.read().rpartition(b"\r\n")[2])["choices"]


def test_requests_behind_one_another_are_all_answered(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_module, "_HEAD_S", 0.1)
    body = json.dumps({"prompt": [3], "max_tokens": 2, "temperature": 0}).encode()
    request = f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with site.open(request * 5) as link, link.makefile("rb") as replies:
        assert replies.read().count(b"HTTP/1.1 200 OK") == 5
    assert not cast(Connections, site.metrics.connections)._answered


def test_a_request_that_ends_late_does_not_end_the_next_one() -> None:
    """uvicorn begins the next request of a connection before the one before has returned."""
    ends = ("127.0.0.1", 5)
    transport = SimpleNamespace(get_extra_info=lambda name: ends)

    async def answer_two() -> None:
        held = Connections(MOST, lambda why: None)
        over = [asyncio.Event(), asyncio.Event()]
        begun = asyncio.Semaphore(0)

        async def application(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            begun.release()
            await over[scope["number"]].wait()

        async def receive() -> Any:
            return {"type": "http.request"}

        held.add(cast(asyncio.Transport, transport))
        call = held.limited(application)
        scopes = [{"number": n, "client": ends, "server": ends} for n in range(2)]
        calls = [asyncio.create_task(call(s, receive, cast(Any, None))) for s in scopes]
        for _ in calls:
            await begun.acquire()
        over[0].set()
        await calls[0]
        assert (len(held._answered), len(held._waiting)) == (1, 0)
        over[1].set()
        await calls[1]
        assert (len(held._answered), len(held._waiting)) == (0, 1)
        held.remove((ends, ends))

    asyncio.run(answer_two())


def test_a_client_that_still_reads_is_not_cut_off() -> None:
    why: list[Dropped] = []
    unsent = [300, 200, 200]
    aborted: list[bool] = []
    transport = SimpleNamespace(
        get_extra_info=lambda name: ("127.0.0.1", 5),
        get_write_buffer_size=lambda: unsent.pop(0),
        abort=lambda: aborted.append(True),
    )

    async def wait() -> None:
        held = Connections(4, why.append)
        held.add(cast(asyncio.Transport, transport))
        ((ends, only),) = held._waiting.items()
        for is_over in (False, False, True):
            assert not aborted
            held._expire(ends, only)
            assert bool(aborted) == is_over

    asyncio.run(wait())
    assert why == [Dropped.SLOW]


def test_a_turn_of_the_loop_takes_a_few_connections() -> None:
    async def turns() -> list[int]:
        taken = []
        for _ in range(3):
            count = 0
            with suppress(BlockingIOError):
                while True:
                    listening.accept()[0].close()
                    count += 1
            taken.append(count)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return taken

    with PacedSocket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        listening.setblocking(False)
        callers = [socket.create_connection(listening.getsockname()) for _ in range(40)]
        few = connections_module._AT_ONCE
        assert asyncio.run(turns()) == [few, few, 40 - 2 * few]
        for caller in callers:
            caller.close()


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ((64, 64), 32),
        ((256, 256), 156),
        ((256, 512), 412),
        ((1 << 20, 1 << 20), 4096),
        ((256, resource.RLIM_INFINITY), 4096),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 4096),
    ],
)
def test_connections_fit_the_limit_on_open_files(
    limits: tuple[int, int], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: held[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, asked: held.append(asked))
    monkeypatch.setattr(connections_module.os, "listdir", lambda path: ["0", "1", "2", "3"])
    assert most_connections() == most


def test_log_lines_are_counted_instead_of_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    monkeypatch.setattr(counted_log.time, "monotonic", lambda: now[0])
    log = logging.getLogger("tessera.serve")
    with counted_log.counted_logs():
        for later in (0, 70):
            now[0] += later
            for number in range(1000):
                log.warning("socket %d", number)
        log.error("another line")
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "socket 0",
        "socket 0 (999 more like this were not logged)",
        "another line",
        "999 more lines like those above were not logged",
    ]
    assert not any(isinstance(own, CountedLog) for own in log.filters)


SERVED = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from tessera.driver.serve import engine as module
from tessera.driver.serve.metrics import Metrics
from tessera.driver.serve.run_server import open_socket, run_server
from tessera.driver.serve.server import CompletionServer, ServerOptions, text_model
from tests.helpers.toy_runtime import CONTEXT, ToyRuntime

module.Runtime = ToyRuntime
engine = module.Engine("toy.tsp", steps={"context": CONTEXT})
with open_socket("127.0.0.1", 0) as listening:
    print(listening.getsockname()[1], flush=True)
    served = text_model(engine, "toy")
    run_server(CompletionServer(engine, ServerOptions(), served, Metrics()), listening)
engine.close()
"""


def test_half_sent_requests_beyond_the_limit_on_open_files() -> None:
    command = [sys.executable, "-c", SERVED]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        site = Site(int(process.stdout.readline()), cast(Any, None), cast(Any, None))
        crowd = [site.open(b"GET /hea") for _ in range(300)]
        for _ in range(3):
            assert site.ask("GET", "/health", key=None)[0] == 200
        for _ in range(200):
            site.open(b"\x00\xff garbage\r\n\r\n").close()
        assert site.ask("GET", "/health", key=None)[0] == 200
        for link in crowd:
            link.close()
        process.terminate()
        assert len(process.stderr.read()) < 2000
        process.wait(LIMIT_S)
