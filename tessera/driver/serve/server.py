"""`tessc serve`: completions over HTTP, as OpenAI's clients ask for them.

In: an engine. Out: an application of Starlette, and a server (uvicorn) that runs it until SIGTERM
or Ctrl-C, and then finishes what it has begun. Answers come from the engine's thread; every token
wakes the coroutine of its request. A client that goes away gives its answers up.

- `POST /v1/completions`: text or token ids in, text and token ids out, whole or as a stream.
- `GET /v1/models`, `GET /health`, `GET /metrics`.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Protocol

from tessera.diagnostics import TesseraError
from tessera.driver.serve.completion_requests import (
    BadRequest,
    CompletionRequest,
    read_completion,
)
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.metrics import Metrics
from tessera.driver.serve.server_errors import (
    error_response,
    error_value,
    not_offered,
    unforeseen,
)
from tessera.driver.serve.text import GrowingText, Tokenizing, not_served

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    Answering = Callable[[Request], Awaitable[Response]]

_FAULTS = {"TSR5064": 400, "TSR5065": 429, "TSR5053": 400, "TSR5050": 503}
_GONE = 499
"""Nobody reads this status; it is counted."""
_LONG_BODY = 1 << 15
_BODY_S = 30.0
"""A body that comes more slowly is given up: it would keep the server from ending."""
_WATCH_S = 0.5
_TAKE_S = 10.0
"""So long clients have for their answers once the server ends and all of them are made."""
_BACKLOG = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Who may ask, and for how much."""

    name: str = "tessera"
    key: str | None = None
    most_bytes: int = 1 << 20
    deadline_s: float | None = None


class EndingServer(Protocol):
    """A server that is told to end, or to end at once."""

    should_exit: bool
    force_exit: bool


class CompletionServer:
    """The routes of a server over one engine."""

    def __init__(
        self, engine: Engine, options: ServerOptions, tokenizer: Tokenizing | None, metrics: Metrics
    ) -> None:
        self._engine = engine
        self._options = options
        self._tokenizer = tokenizer
        self._metrics = metrics
        self._numbers = count(1)
        steps = engine.model.steps
        self._draws = all(s.has("logits") or s.has("uniform") for s in steps if s.size.is_decode)

    def application(self) -> Starlette:
        """The application, for any server that speaks ASGI."""
        try:
            from starlette.applications import Starlette
            from starlette.routing import Route
        except ImportError:
            raise not_served(
                "the package `starlette` is not installed", "pip install 'tessera-compiler[serve]'"
            ) from None
        return Starlette(
            routes=[
                Route("/v1/completions", self._guarded(self._complete), methods=["POST"]),
                Route("/v1/models", self._guarded(self._models)),
                Route("/health", self._health),
                Route("/metrics", self._guarded(self._show_metrics)),
            ],
            exception_handlers={404: not_offered, 405: not_offered, Exception: unforeseen},
        )

    @property
    def is_idle(self) -> bool:
        """Whether all answers are made."""
        return not (self._engine.running or self._engine.waiting)

    # --- routes -----------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Response:
        from starlette.responses import JSONResponse

        is_well = self._engine.is_well
        return JSONResponse({"status": "ok" if is_well else "ended"}, 200 if is_well else 503)

    async def _models(self, request: Request) -> Response:
        from starlette.responses import JSONResponse

        entry = {"id": self._options.name, "object": "model", "owned_by": "tessera"}
        return JSONResponse({"object": "list", "data": [entry]})

    async def _show_metrics(self, request: Request) -> Response:
        from starlette.responses import PlainTextResponse

        text = self._metrics.text(self._engine)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def _complete(self, request: Request) -> Response:
        from starlette.responses import JSONResponse, StreamingResponse

        body = await self._body(request)
        number = next(self._numbers)
        read = partial(read_completion, body, self._tokenizer, draws=self._draws, seed=number)
        # A long body is read by another thread: answers of others go on meanwhile.
        wanted = read() if len(body) < _LONG_BODY else await asyncio.to_thread(read)
        answers = self._submit(wanted)
        reply = Reply(f"cmpl-{number}", self._options.name, wanted, answers, self._tokenizer)
        if wanted.is_streamed:
            return StreamingResponse(reply.stream(), media_type="text/event-stream")
        watch = asyncio.ensure_future(_gone(request, answers))
        try:
            return JSONResponse(await reply.whole())
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    def _submit(self, wanted: CompletionRequest) -> list[Generation]:
        answers: list[Generation] = []
        try:
            for place, prompt in enumerate(wanted.prompts):
                answers.append(
                    self._engine.submit(
                        prompt,
                        max_tokens=wanted.most,
                        temperature=wanted.temperature,
                        top_k=wanted.top_k,
                        top_p=wanted.top_p,
                        seed=wanted.seed + place,
                        stop=wanted.stop_tokens,
                        ignore_end=wanted.ignores_end,
                        deadline_s=self._options.deadline_s,
                    )
                )
        except TesseraError as problem:
            for answer in answers:
                answer.cancel()
            diagnostic = problem.diagnostics[0]
            status = _FAULTS.get(diagnostic.code, 500)
            retry_s = 1 if status in (429, 503) else 0
            raise BadRequest(diagnostic.headline, status=status, retry_s=retry_s) from None
        return answers

    async def _body(self, request: Request) -> bytes:
        """The body, unless it is too long: then no more of it is read."""
        from starlette.requests import ClientDisconnect

        most = self._options.most_bytes
        parts, size = [], 0
        try:
            async with asyncio.timeout(_BODY_S):
                async for part in request.stream():
                    size += len(part)
                    if size > most:
                        raise BadRequest(f"the body has more than {most} bytes", status=413)
                    parts.append(part)
        except TimeoutError:
            message = f"the body did not come within {_BODY_S:g} seconds"
            raise BadRequest(message, status=408) from None
        except ClientDisconnect:
            raise BadRequest("the client went away", status=_GONE) from None
        return b"".join(parts)

    def _guarded(self, route: Answering) -> Answering:
        """A route for those who have the key, with errors as clients expect them."""

        async def guarded(request: Request) -> Response:
            try:
                self._check_key(request.headers.get("authorization", ""))
                return await route(request)
            except BadRequest as bad:
                self._metrics.refuse(bad.status)
                return error_response(bad)

        return guarded

    def _check_key(self, header: str) -> None:
        key = self._options.key
        if key is None:
            return
        given = header.removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), key.encode()):
            raise BadRequest("the API key is missing or wrong", status=401)


class Reply:
    """The answers to one request, as they come."""

    def __init__(
        self,
        name: str,
        model: str,
        wanted: CompletionRequest,
        answers: Sequence[Generation],
        tokenizer: Tokenizing | None,
    ) -> None:
        self._head = {"id": name, "object": "text_completion", "model": model}
        self._head["created"] = str(int(time.time()))
        self._wanted = wanted
        self._answers = answers
        self._texts = [GrowingText(tokenizer, wanted.stops) for _ in answers]
        self._given = [0] * len(answers)
        self._news = asyncio.Event()
        loop = asyncio.get_running_loop()
        for answer in answers:
            answer.listen(lambda _: self._wake(loop))

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the server is gone
            loop.call_soon_threadsafe(self._news.set)

    async def whole(self) -> dict[str, object]:
        """All answers at once."""
        texts = ["" for _ in self._answers]
        tokens: list[list[int]] = [[] for _ in self._answers]
        ends: dict[int, str] = {}
        async for place, text, part, end in self._parts():
            texts[place] += text
            tokens[place] += part
            if end:
                ends[place] = end
        choices = [
            _choice(place, texts[place], tokens[place], ends.get(place))
            for place in range(len(texts))
        ]
        return self._value(choices) | {"usage": self._usage()}

    async def stream(self) -> AsyncIterator[bytes]:
        """Events, each with what has come of one answer."""
        try:
            async for place, text, tokens, end in self._parts():
                if text or tokens or end:
                    yield _event(self._value([_choice(place, text, tokens, end or None)]))
            if self._wanted.wants_usage:
                yield _event(self._value([]) | {"usage": self._usage()})
            yield b"data: [DONE]\n\n"
        except BadRequest as bad:
            yield _event(error_value(bad))
        finally:
            for answer in self._answers:
                answer.cancel()

    async def _parts(self) -> AsyncIterator[tuple[int, str, list[int], str]]:
        left = set(range(len(self._answers)))
        while left:
            await self._news.wait()
            self._news.clear()
            for place in sorted(left):
                text, tokens, end = self._more(place)
                if end:
                    left.discard(place)
                yield place, text, tokens, end

    def _more(self, place: int) -> tuple[str, list[int], str]:
        """What is new of an answer, and how it has ended."""
        answer, text = self._answers[place], self._texts[place]
        end = answer.ended
        if end == "fault":
            raise BadRequest(answer.fault_words(), status=500)
        known = answer.settled()
        part = text.more(known, is_over=bool(end))
        tokens = known[self._given[place] :]
        self._given[place] = len(known)
        if text.is_stopped:
            answer.cancel()
            end = "stop"
        return part, tokens, {"deadline": "length", "cancelled": "stop"}.get(end, end)

    def _value(self, choices: list[dict[str, object]]) -> dict[str, object]:
        return {**self._head, "created": int(self._head["created"]), "choices": choices}

    def _usage(self) -> dict[str, int]:
        going_in = sum(len(answer.prompt) for answer in self._answers)
        coming_out = sum(self._given)
        return {
            "prompt_tokens": going_in,
            "completion_tokens": coming_out,
            "total_tokens": going_in + coming_out,
        }


def _choice(place: int, text: str, tokens: list[int], end: str | None) -> dict[str, object]:
    return {
        "index": place,
        "text": text,
        "token_ids": tokens,
        "logprobs": None,
        "finish_reason": end,
    }


def _event(value: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


async def _gone(request: Request, answers: Sequence[Generation]) -> None:
    """Give answers up when their client is gone."""
    while not await request.is_disconnected():
        await asyncio.sleep(_WATCH_S)
    for answer in answers:
        answer.cancel()


# --- the process ----------------------------------------------------------------------------------


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there, before anything slow is done."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
    except (OSError, OverflowError, TypeError, ValueError) as problem:
        made.close()
        reason = getattr(problem, "strerror", None) or str(problem)
        is_taken = getattr(problem, "errno", None) in (errno.EADDRINUSE, errno.EACCES)
        raise not_served(
            f"cannot listen on {host}, port {port}: {reason.lower()}",
            "choose another port with `--port`, or end what has this one"
            if is_taken
            else "`--host` takes an address of this machine, such as 127.0.0.1 or 0.0.0.0",
        ) from None
    return made


def run_server(server: CompletionServer, listening: socket.socket) -> None:
    """Serve until a signal; then finish what has begun, and return."""
    application = server.application()
    try:
        import uvicorn
    except ImportError:
        raise not_served(
            "the package `uvicorn` is not installed", "pip install 'tessera-compiler[serve]'"
        ) from None
    config = uvicorn.Config(application, log_level="warning", access_log=False, lifespan="off")
    # uvicorn raises a signal again once it has stopped: whoever called this still has things to do.
    is_main = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.signal(number, lambda *_: None) for number in signals}
    running, over = uvicorn.Server(config), threading.Event()
    watch = threading.Thread(target=leave_stuck, args=(running, server, over), daemon=True)
    watch.start()
    try:
        running.run(sockets=[listening])
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_stuck(running: EndingServer, server: CompletionServer, over: threading.Event) -> None:
    """A client that does not read what it asked for does not keep the server from ending."""
    while not over.wait(_WATCH_S):
        if running.should_exit and server.is_idle:
            running.force_exit = not over.wait(_TAKE_S)
            return
