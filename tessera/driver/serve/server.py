"""`tessc serve`: completions over HTTP, as OpenAI's clients ask for them.

In: an engine. Out: an application of Starlette, and a server (uvicorn) that runs it until SIGTERM
or Ctrl-C, and then finishes the requests under way. Answers come from the engine's thread; every
token wakes the coroutine of its request. A client that disconnects cancels its answers.

- `POST /v1/completions`: text or token ids in, text and token ids out, whole or as a stream.
- `GET /v1/models`, `GET /v1/models/{id}`, `GET /health`, `GET /metrics`.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tessera.diagnostics import TesseraError
from tessera.driver.serve.completion_requests import (
    BadRequest,
    CompletionRequest,
    ErrorCode,
    check_model,
    error_response,
    not_offered,
    read_completion,
    unforeseen,
)
from tessera.driver.serve.connections import Connections, PacedSocket, most_connections
from tessera.driver.serve.counted_log import counted_logs
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.metrics import Metrics
from tessera.driver.serve.replies import Reply
from tessera.driver.serve.text import Tokenizing, not_served

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    Answering = Callable[[Request], Awaitable[Response]]

_FAULTS = {
    "TSR5064": ErrorCode.INVALID_VALUE,
    "TSR5065": ErrorCode.RATE_LIMIT_EXCEEDED,
    "TSR5053": ErrorCode.INVALID_VALUE,
    "TSR5050": ErrorCode.SERVICE_UNAVAILABLE,
}
_LONG_BODY = 1 << 15
_BODY_S = 30.0
"""Seconds for a body to arrive: a slower client would keep the server from ending."""
_WATCH_S = 0.5
_TAKE_S = 10.0
"""Seconds that clients get to read finished answers during shutdown."""
_BACKLOG = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The name of the model, the API key, and limits on requests."""

    name: str = "tessera"
    key: str | None = None
    most_bytes: int = 1 << 20
    deadline_s: float | None = None


class EndingServer(Protocol):
    """A server that can be asked to end, or to end at once."""

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
        self.metrics = metrics
        self._started_s = int(time.time())
        steps = engine.model.steps
        self._draws = all(s.has("logits") or s.has("uniform") for s in steps if s.size.answers)

    def application(self) -> Starlette:
        """The application, for any ASGI server."""
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
                Route("/v1/models/{id:path}", self._guarded(self._model)),
                Route("/health", self._health),
                Route("/metrics", self._guarded(self._show_metrics)),
            ],
            exception_handlers={404: not_offered, 405: not_offered, Exception: unforeseen},
        )

    @property
    def is_idle(self) -> bool:
        """Whether all answers are complete."""
        return not (self._engine.running or self._engine.waiting)

    # --- routes -----------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Response:
        from starlette.responses import JSONResponse

        is_well = self._engine.is_well
        return JSONResponse({"status": "ok" if is_well else "ended"}, 200 if is_well else 503)

    async def _models(self, request: Request) -> Response:
        from starlette.responses import JSONResponse

        return JSONResponse({"object": "list", "data": [self._entry()]})

    async def _model(self, request: Request) -> Response:
        from starlette.responses import JSONResponse

        check_model(request.path_params["id"], self._options.name)
        return JSONResponse(self._entry())

    def _entry(self) -> dict[str, object]:
        return {
            "id": self._options.name,
            "object": "model",
            "created": self._started_s,
            "owned_by": "tessera",
        }

    async def _show_metrics(self, request: Request) -> Response:
        from starlette.responses import PlainTextResponse

        text = self.metrics.text(self._engine)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def _complete(self, request: Request) -> Response:
        from starlette.responses import JSONResponse, StreamingResponse

        body = await self._body(request)
        name = self._options.name
        read = partial(read_completion, body, self._tokenizer, model=name, draws=self._draws)
        # Another thread parses a long body, so that the answers of others go on meanwhile.
        wanted = read() if len(body) < _LONG_BODY else await asyncio.to_thread(read)
        answers = self._submit(wanted)
        reply = Reply(name, wanted, answers, self._tokenizer)
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
                        seed=None if wanted.seed is None else wanted.seed + place,
                        stop=wanted.stop_tokens,
                        ignore_end=wanted.ignores_end,
                        deadline_s=self._options.deadline_s,
                    )
                )
        except TesseraError as problem:
            for answer in answers:
                answer.cancel()
            diagnostic = problem.diagnostics[0]
            code = _FAULTS.get(diagnostic.code, ErrorCode.SERVER_ERROR)
            is_long = not self._engine.sizes.holds(len(prompt), wanted.most)
            if code is ErrorCode.INVALID_VALUE and is_long:
                code = ErrorCode.CONTEXT_LENGTH_EXCEEDED
            retry_s = 1 if code.status in (429, 503) else 0
            raise BadRequest(str(diagnostic.headline), code=code, retry_s=retry_s) from None
        return answers

    async def _body(self, request: Request) -> bytes:
        """The body; if it is too long, the rest of it is not read."""
        from starlette.requests import ClientDisconnect

        most = self._options.most_bytes
        parts, size = [], 0
        try:
            async with asyncio.timeout(_BODY_S):
                async for part in request.stream():
                    size += len(part)
                    if size > most:
                        message = f"the body has more than {most} bytes"
                        raise BadRequest(message, code=ErrorCode.REQUEST_TOO_LARGE)
                    parts.append(part)
        except TimeoutError:
            message = f"the body did not come within {_BODY_S:g} seconds"
            raise BadRequest(message, code=ErrorCode.REQUEST_TIMEOUT) from None
        except ClientDisconnect:
            raise BadRequest("the client went away", code=ErrorCode.CLIENT_CLOSED) from None
        return b"".join(parts)

    def _guarded(self, route: Answering) -> Answering:
        """A route that checks the key, and answers errors as clients expect them."""

        async def guarded(request: Request) -> Response:
            try:
                self._check_key(request.headers.get("authorization", ""))
                return await route(request)
            except BadRequest as bad:
                self.metrics.refuse(bad.status)
                return error_response(bad)

        return guarded

    def _check_key(self, header: str) -> None:
        key = self._options.key
        if key is None:
            return
        scheme, _, given = header.partition(" ")
        is_right = hmac.compare_digest(given.strip().encode(), key.encode())
        if scheme.lower() != "bearer" or not is_right:
            message = "the API key is missing or wrong: send `Authorization: Bearer KEY`"
            raise BadRequest(message, code=ErrorCode.INVALID_API_KEY)


async def _gone(request: Request, answers: Sequence[Generation]) -> None:
    """Cancel answers when their client has disconnected."""
    while not await request.is_disconnected():
        await asyncio.sleep(_WATCH_S)
    for answer in answers:
        answer.cancel()


# --- the process ----------------------------------------------------------------------------------


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket, opened before anything slow is done."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = PacedSocket(family, socket.SOCK_STREAM)
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


def server_config(server: CompletionServer, most: int) -> uvicorn.Config:
    """The configuration of uvicorn, with at most `most` connections."""
    application = server.application()
    try:
        import uvicorn
    except ImportError:
        raise not_served(
            "the package `uvicorn` is not installed", "pip install 'tessera-compiler[serve]'"
        ) from None
    connections = server.metrics.connections = Connections(most, server.metrics.drop)
    return uvicorn.Config(
        connections.limited(application),
        interface="asgi3",
        http=connections.protocol(),
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # the addresses of requests are those of their connections
    )


def run_server(server: CompletionServer, listening: socket.socket) -> None:
    """Serve until a signal; then finish the requests under way, and return."""
    config = server_config(server, most_connections())
    import uvicorn

    # uvicorn raises a signal again once it has stopped, but the caller has to close the engine.
    is_main = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.signal(number, lambda *_: None) for number in signals}
    running, over = uvicorn.Server(config), threading.Event()
    watch = threading.Thread(target=leave_stuck, args=(running, server, over), daemon=True)
    watch.start()
    try:
        with counted_logs():
            running.run(sockets=[listening])
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_stuck(running: EndingServer, server: CompletionServer, over: threading.Event) -> None:
    """End the server even if a client does not read its answer."""
    while not over.wait(_WATCH_S):
        if running.should_exit and server.is_idle:
            running.force_exit = not over.wait(_TAKE_S)
            return
