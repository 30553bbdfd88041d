"""The body of a completion request, checked.

In: bytes. Out: a `CompletionRequest`, or `BadRequest` with a status and a message for the client.
Fields are those of OpenAI's completions. An unknown field that would change an answer is refused; a
field that changes nothing (`user`) is accepted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, cast

from tessera.driver.serve.text import Tokenizing

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


_KNOWN = {
    "model",
    "prompt",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "stream",
    "stream_options",
    "stop",
    "stop_token_ids",
    "seed",
    "ignore_eos",
    "user",
    "n",
    "best_of",
    "echo",
    "logprobs",
    "suffix",
    "logit_bias",
    "presence_penalty",
    "frequency_penalty",
}
_FIXED: Mapping[str, object] = {
    "n": 1,
    "best_of": 1,
    "echo": False,
    "logprobs": False,
    "suffix": "",
    "logit_bias": {},
    "presence_penalty": 0,
    "frequency_penalty": 0,
}
MOST_PROMPTS = 128
MOST_STOPS = 64
"""Most texts that may end an answer: each is searched for after every token, while others wait."""


class ErrorCode(StrEnum):
    """The error codes of OpenAI, each with its HTTP status."""

    status: int

    def __new__(cls, word: str, status: int) -> ErrorCode:
        """A code with its status."""
        made = str.__new__(cls, word)
        made._value_ = word
        made.status = status
        return made

    INVALID_REQUEST = "invalid_request", 400
    INVALID_VALUE = "invalid_value", 400
    MISSING_PARAMETER = "missing_required_parameter", 400
    UNKNOWN_PARAMETER = "unknown_parameter", 400
    UNSUPPORTED_VALUE = "unsupported_value", 400
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded", 400
    INVALID_API_KEY = "invalid_api_key", 401
    MODEL_NOT_FOUND = "model_not_found", 404
    UNKNOWN_URL = "unknown_url", 404
    METHOD_NOT_ALLOWED = "method_not_allowed", 405
    REQUEST_TIMEOUT = "request_timeout", 408
    REQUEST_TOO_LARGE = "request_too_large", 413
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded", 429
    CLIENT_CLOSED = "client_closed_request", 499
    """No client reads this status; it is only counted."""
    SERVER_ERROR = "server_error", 500
    SERVICE_UNAVAILABLE = "service_unavailable", 503
    SERVER_OVERLOADED = "server_overloaded", 503


class BadRequest(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode = ErrorCode.INVALID_VALUE,
        field: str | None = None,
        retry_s: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.field = field
        self.retry_s = retry_s

    @property
    def status(self) -> int:
        """The status of the answer."""
        return self.code.status


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """Prompts as tokens, and how to answer them; without a seed, draws use fresh entropy."""

    prompts: tuple[tuple[int, ...], ...]
    most: int
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    stops: tuple[str, ...]
    stop_tokens: tuple[int, ...]
    is_streamed: bool
    wants_usage: bool
    ignores_end: bool


def read_completion(
    body: bytes, tokenizer: Tokenizing | None, *, model: str, draws: bool
) -> CompletionRequest:
    """The request in a body, for the `model` that is served.

    `draws`: the model can draw tokens, so the default temperature is 1.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("the body is no JSON", code=ErrorCode.INVALID_REQUEST) from None
    if not isinstance(value, dict):
        raise BadRequest("the body must be an object", code=ErrorCode.INVALID_REQUEST)
    given = {key: part for key, part in value.items() if part is not None}
    check_model(given.get("model", model), model)
    for key in given:
        if key not in _KNOWN:
            raise BadRequest(
                f"`{_shown(key)}` is not known here",
                code=ErrorCode.UNKNOWN_PARAMETER,
                field=_shown(key),
            )
    for key, fixed in _FIXED.items():
        if key in given and not _is_same(given[key], fixed):
            message = f"`{key}` can only be {json.dumps(fixed)} here"
            raise BadRequest(message, code=ErrorCode.UNSUPPORTED_VALUE, field=key)
    if "prompt" not in given:
        code = ErrorCode.MISSING_PARAMETER
        raise BadRequest("`prompt` is missing", code=code, field="prompt")
    options = given.get("stream_options", {})
    if not isinstance(options, Mapping):
        raise BadRequest("`stream_options` must be an object", field="stream_options")
    return CompletionRequest(
        prompts=_prompts(given["prompt"], tokenizer),
        most=_whole(given, "max_tokens", 16, least=1),
        temperature=_number(given, "temperature", 1.0 if draws else 0.0, 0.0, 100.0),
        top_p=_number(given, "top_p", 1.0, 1e-6, 1.0),
        top_k=max(_whole(given, "top_k", 0, least=-1), 0),
        seed=_whole(given, "seed", 0, least=0) if "seed" in given else None,
        stops=_stops(given.get("stop", ()), tokenizer),
        stop_tokens=_tokens(given.get("stop_token_ids", []), "stop_token_ids"),
        is_streamed=_flag(given, "stream"),
        wants_usage=_flag(options, "include_usage"),
        ignores_end=_flag(given, "ignore_eos"),
    )


def check_model(given: object, served: str) -> None:
    """Raise if the requested model is not the one that is served."""
    if not isinstance(given, str):
        raise BadRequest("`model` must be a text", field="model")
    if given != served:
        raise BadRequest(
            f"the model `{_shown(given)}` does not exist: this server has `{served}`",
            code=ErrorCode.MODEL_NOT_FOUND,
            field="model",
        )


def _shown(text: str) -> str:
    """The first 80 characters of a client's text, without lone surrogates."""
    return text[:80].encode(errors="replace").decode()


def _is_same(value: object, fixed: object) -> bool:
    """Whether both are equal, and not one a truth value and the other a number."""
    return value == fixed and isinstance(value, bool) == isinstance(fixed, bool)


def _prompts(given: object, tokenizer: Tokenizing | None) -> tuple[tuple[int, ...], ...]:
    listed = given if isinstance(given, list) else [given]
    if listed and all(_is_whole(token) for token in listed):
        return (_tokens(listed, "prompt"),)
    if not 0 < len(listed) <= MOST_PROMPTS:
        raise BadRequest(f"`prompt` must have 1 to {MOST_PROMPTS} prompts", field="prompt")
    return tuple(_prompt(prompt, tokenizer) for prompt in listed)


def _prompt(given: object, tokenizer: Tokenizing | None) -> tuple[int, ...]:
    if isinstance(given, str):
        if tokenizer is None:
            raise BadRequest(
                "this server has no tokenizer: `prompt` must be token ids", field="prompt"
            )
        if not _is_text(given):
            raise BadRequest("`prompt` has half of a letter", field="prompt")
        return tuple(tokenizer.encode(given))
    return _tokens(given, "prompt")


def _tokens(given: object, field: str) -> tuple[int, ...]:
    if not isinstance(given, list) or not all(_is_whole(token) for token in given):
        wanted = "texts or token ids" if field == "prompt" else "a list of token ids"
        raise BadRequest(f"`{field}` must be {wanted}", field=field)
    return tuple(cast("list[int]", given))


def _stops(given: object, tokenizer: Tokenizing | None) -> tuple[str, ...]:
    listed = list(given) if isinstance(given, list | tuple) else [given]
    if not all(_is_text(stop) and stop for stop in listed):
        raise BadRequest("`stop` must be a text or texts", field="stop")
    if len(listed) > MOST_STOPS:
        raise BadRequest(f"`stop` must have at most {MOST_STOPS} texts", field="stop")
    if listed and tokenizer is None:
        raise BadRequest("this server has no tokenizer: use `stop_token_ids`", field="stop")
    return tuple(cast("list[str]", listed))


def _is_text(value: object) -> bool:
    """Whether a value is text that can be encoded: JSON can contain lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(given: Mapping[str, object], key: str, default: int, *, least: int) -> int:
    value = given.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 62:
        raise BadRequest(f"`{key}` must be a whole number, {least} or more", field=key)
    return value


def _number(
    given: Mapping[str, object], key: str, default: float, least: float, most: float
) -> float:
    value = given.get(key, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not is_number or not least <= value <= most:
        raise BadRequest(f"`{key}` must be a number from {least:g} to {most:g}", field=key)
    return float(value)


def _flag(given: Mapping[str, object], key: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise BadRequest(f"`{key}` must be true or false", field=key)
    return value


# --- errors as responses -------------------------------------------------------------------------


_OFFERED = "POST /v1/completions, GET /v1/models, GET /v1/models/{id}, GET /health, GET /metrics"
_KINDS = {429: "requests"}
_log = logging.getLogger("tessera.serve")


def error_value(bad: BadRequest) -> dict[str, object]:
    """The body of an error."""
    kind = _KINDS.get(bad.status, "invalid_request_error" if bad.status < 500 else "server_error")
    error = {"message": bad.message, "type": kind, "param": bad.field, "code": bad.code}
    return {"error": error}


def error_response(bad: BadRequest) -> Response:
    """The response to a refused request."""
    from starlette.responses import JSONResponse

    headers = {"Retry-After": str(bad.retry_s)} if bad.retry_s else {}
    if bad.code is ErrorCode.INVALID_API_KEY:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_value(bad), bad.status, headers)


async def not_offered(request: Request, problem: Exception) -> Response:
    """The response to a path or method that is not served."""
    is_method = getattr(problem, "status_code", 404) == ErrorCode.METHOD_NOT_ALLOWED.status
    path = request.url.path[:80]
    message = f"{request.method} {path} is not offered here: {_OFFERED}"
    if path.rstrip("/").endswith("/chat/completions"):
        message = (
            "chat completions are not offered here: put the chat template of the model around the "
            "messages and send that to POST /v1/completions as `prompt`"
        )
    code = ErrorCode.METHOD_NOT_ALLOWED if is_method else ErrorCode.UNKNOWN_URL
    return error_response(BadRequest(message, code=code))


async def unforeseen(request: Request, problem: Exception) -> Response:
    """The response to an unexpected exception."""
    _log.error("a request failed", exc_info=problem)
    words = f"the server failed: {type(problem).__name__}"
    return error_response(BadRequest(words, code=ErrorCode.SERVER_ERROR))
