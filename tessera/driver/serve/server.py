"""`tessc serve`: chats and completions over HTTP, as OpenAI's clients ask for them.

In: an engine. Out: an application of Starlette, which `run_server` runs. Answers come from the
engine's thread; every token wakes the coroutine of its request. A client that disconnects cancels
its answers.

- `POST /v1/chat/completions`: messages in, by the model's own template.
- `POST /v1/completions`: text or token ids in; both give text and token ids, whole or as a stream.
- `POST /tokenize` and `/detokenize`.
- `GET /v1/models`, `/v1/models/{id}`, `/live`, `/ready`, `/health`, `/metrics`.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tessera.diagnostics import TesseraError
from tessera.driver.serve.api_errors import (
    BadRequest,
    ErrorCode,
    error_response,
    not_offered,
    request_id,
    unforeseen,
)
from tessera.driver.serve.chat_template import ChatTemplate
from tessera.driver.serve.completion_requests import (
    CompletionRequest,
    GenerationDefaults,
    TextModel,
    chat_prompt,
    check_model,
    read_chat,
    read_completion,
    read_prompt,
)
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.grammars import Grammars
from tessera.driver.serve.metrics import Metrics
from tessera.driver.serve.replies import Reply
from tessera.driver.serve.request_fields import read_fields, read_tokens_field
from tessera.driver.serve.sampling import LIMITS
from tessera.driver.serve.text import Tokenizing, not_served

if TYPE_CHECKING:
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
_GRAMMAR = b"response_format"
_CHAT_ONLY = {"chat_template_kwargs"}
_BODY_S = 30.0
"""Seconds for a body to arrive: a slower client would keep the server from ending."""
_WATCH_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The API keys, if one is needed, limits on requests, and what HTTP needs besides.

    Pages from `origins` may ask in a browser; `*` is all of them. `certificate` and
    `certificate_key` are files for TLS. `logs`: every request is a line of the log. `isolate`:
    requests with different keys share no prefixes.
    """

    keys: tuple[str, ...] = ()
    most_bytes: int = 1 << 20
    deadline_s: float | None = None
    origins: tuple[str, ...] = ()
    certificate: str | None = None
    certificate_key: str | None = None
    logs: bool = False
    isolate: bool = False


def text_model(
    engine: Engine,
    name: str,
    tokenizer: Tokenizing | None = None,
    template: ChatTemplate | None = None,
    defaults: GenerationDefaults | None = None,
) -> TextModel:
    """The model of an engine, with the defaults that its steps can keep to."""
    steps = [step for step in engine.model.steps if step.size.answers]
    defaults = defaults or GenerationDefaults()
    if not all(step.has("logits") for step in steps):

        def known(role: str) -> bool:
            return all(step.has(role) or step.has("logits") for step in steps)

        is_drawn = known("uniform")
        kept = {name: getattr(defaults, name) for name in LIMITS if is_drawn and known(name)}
        defaults = GenerationDefaults(
            temperature=defaults.temperature if is_drawn else 0.0,
            max_new_tokens=defaults.max_new_tokens,
            **kept,
        )
    size = engine.model.vocabulary
    return TextModel(
        name=name,
        tokenizer=tokenizer,
        template=template,
        grammars=Grammars(tokenizer, size, engine.model.end) if tokenizer and size else None,
        defaults=defaults,
        vocabulary=size,
    )


class CompletionServer:
    """The routes of a server over one engine."""

    def __init__(
        self, engine: Engine, options: ServerOptions, served: TextModel, metrics: Metrics
    ) -> None:
        self._engine = engine
        self.options = options
        self._served = served
        self.metrics = metrics
        self._started_s = int(time.time())

    def application(self) -> Starlette:
        """The application, for any ASGI server."""
        try:
            from starlette.applications import Starlette
            from starlette.middleware import Middleware
            from starlette.middleware.cors import CORSMiddleware
            from starlette.routing import Route
        except ImportError:
            raise not_served(
                "the package `starlette` is not installed", "pip install 'tessera-compiler[serve]'"
            ) from None
        shared = Middleware(
            CORSMiddleware,
            allow_origins=self.options.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
        posts: dict[str, Answering] = {
            "/v1/chat/completions": partial(self._complete, read_chat),
            "/v1/completions": partial(self._complete, read_completion),
            "/tokenize": self._tokenize,
            "/detokenize": self._detokenize,
        }
        return Starlette(
            middleware=[shared] if self.options.origins else [],
            routes=[
                *(Route(path, self._guarded(own), methods=["POST"]) for path, own in posts.items()),
                Route("/v1/models", self._guarded(self._models)),
                Route("/v1/models/{id:path}", self._guarded(self._model)),
                Route("/live", self._live),
                Route("/ready", self._ready),
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

    async def _live(self, request: Request) -> Response:
        """Whether the process answers at all."""
        from starlette.responses import JSONResponse

        return JSONResponse({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        """Whether a prompt would be taken now."""
        from starlette.responses import JSONResponse

        words = self._engine.unready
        return JSONResponse({"status": words or "ok"}, 503 if words else 200)

    async def _health(self, request: Request) -> Response:
        """Whether the engine has not ended."""
        from starlette.responses import JSONResponse

        is_well = self._engine.is_well
        return JSONResponse({"status": "ok" if is_well else "ended"}, 200 if is_well else 503)

    async def _models(self, request: Request) -> Response:
        from starlette.responses import JSONResponse

        return JSONResponse({"object": "list", "data": [self._entry()]})

    async def _model(self, request: Request) -> Response:
        from starlette.responses import JSONResponse

        check_model(request.path_params["id"], self._served.name)
        return JSONResponse(self._entry())

    def _entry(self) -> dict[str, object]:
        return {
            "id": self._served.name,
            "object": "model",
            "created": self._started_s,
            "owned_by": "tessera",
            "max_model_len": self._engine.sizes.context,
        }

    async def _show_metrics(self, request: Request) -> Response:
        from starlette.responses import PlainTextResponse

        text = self.metrics.text(self._engine)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def _tokenize(self, request: Request) -> Response:
        """The tokens of a prompt, or of a chat."""
        from starlette.responses import JSONResponse

        given = read_fields(await self._body(request))
        given.refuse_unknown({"model", "prompt", "messages", "add_special_tokens"} | _CHAT_ONLY)
        check_model(given.get("model", self._served.name), self._served.name)
        if "messages" in given:
            tokens = await asyncio.to_thread(chat_prompt, given, self._served)
        else:
            special = given.flag("add_special_tokens", default=True)
            read = partial(read_prompt, given.needed("prompt"), self._served.tokenizer)
            tokens = await asyncio.to_thread(read, special=special)
        longest = self._engine.sizes.context
        return JSONResponse({"count": len(tokens), "max_model_len": longest, "tokens": tokens})

    async def _detokenize(self, request: Request) -> Response:
        """The text of tokens."""
        from starlette.responses import JSONResponse

        given = read_fields(await self._body(request))
        given.refuse_unknown({"model", "tokens"})
        check_model(given.get("model", self._served.name), self._served.name)
        tokens = read_tokens_field(given.needed("tokens"), "tokens")
        if self._served.tokenizer is None:
            raise BadRequest("this server has no tokenizer", code=ErrorCode.UNSUPPORTED_VALUE)
        if not all(0 <= token < (self._served.vocabulary or 1 << 31) for token in tokens):
            raise BadRequest("`tokens` has a token that is not in the vocabulary", field="tokens")
        text = await asyncio.to_thread(self._served.tokenizer.decode, tokens)
        return JSONResponse({"prompt": text})

    async def _complete(
        self, read: Callable[[bytes, TextModel], CompletionRequest], request: Request
    ) -> Response:
        from starlette.responses import JSONResponse, StreamingResponse

        body = await self._body(request)
        # Another thread does what may take long, so that the answers of others go on meanwhile.
        is_short = read is read_completion and len(body) < _LONG_BODY and _GRAMMAR not in body
        if is_short:
            wanted = read(body, self._served)
        else:
            wanted = await asyncio.to_thread(read, body, self._served)
        owner = (request.scope["tessera.key"] or "") if self.options.isolate else ""
        answers = self._submit(wanted, owner)
        reply = Reply(self._served, wanted, answers, request_id(request.scope))
        if wanted.is_streamed:
            return StreamingResponse(reply.stream(), media_type="text/event-stream")
        watch = asyncio.ensure_future(_gone(request, answers))
        try:
            return JSONResponse(await reply.whole())
        finally:
            watch.cancel()
            for answer in answers:  # the others, if there was a fault
                answer.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    def _submit(self, wanted: CompletionRequest, owner: str) -> list[Generation]:
        answers: list[Generation] = []
        sizes = self._engine.sizes
        asked = [prompt for prompt in wanted.prompts for _ in range(wanted.count)]
        try:
            for place, prompt in enumerate(asked):
                asked_for = wanted.most
                most = sizes.longest_answer(len(prompt)) if asked_for is None else asked_for
                most = max(most, 1)
                answers.append(
                    self._engine.submit(
                        prompt,
                        max_tokens=most,
                        sampling=wanted.sampling.reseeded(place),
                        stop=wanted.stop_tokens,
                        ignore_end=wanted.ignores_end,
                        deadline_s=self.options.deadline_s,
                        constraint=wanted.constraint(),
                        reads_prompt=wanted.reads_prompt,
                        owner=owner,
                    )
                )
        except TesseraError as problem:
            for answer in answers:
                answer.cancel()
            diagnostic = problem.diagnostics[0]
            code = _FAULTS.get(diagnostic.code, ErrorCode.SERVER_ERROR)
            is_long = not sizes.holds(len(prompt), most)
            if code is ErrorCode.INVALID_VALUE and is_long:
                code = ErrorCode.CONTEXT_LENGTH_EXCEEDED
            retry_s = 1 if code.status in (429, 503) else 0
            words = "; ".join(filter(None, [str(diagnostic.headline), diagnostic.hint]))
            raise BadRequest(words, code=code, retry_s=retry_s) from None
        return answers

    async def _body(self, request: Request) -> bytes:
        """The body; if it is too long, the rest of it is not read."""
        from starlette.requests import ClientDisconnect

        most = self.options.most_bytes
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
                request.scope["tessera.key"] = self._key(request.headers.get("authorization", ""))
                return await route(request)
            except BadRequest as bad:
                self.metrics.refuse(bad.status)
                return error_response(bad)

        return guarded

    def _key(self, header: str) -> str:
        """The key of a request; empty if none is needed."""
        keys = self.options.keys
        if not keys:
            return ""
        scheme, _, given = header.partition(" ")
        sent = given.strip().encode()
        known = [key for key in keys if hmac.compare_digest(sent, key.encode())]
        if scheme.lower() != "bearer" or not known:
            message = "the API key is missing or wrong: send `Authorization: Bearer KEY`"
            raise BadRequest(message, code=ErrorCode.INVALID_API_KEY)
        return known[0]


async def _gone(request: Request, answers: Sequence[Generation]) -> None:
    """Cancel answers when their client has disconnected."""
    while not await request.is_disconnected():
        await asyncio.sleep(_WATCH_S)
    for answer in answers:
        answer.cancel()
