"""Errors as OpenAI's clients read them: an object with a message, a type, a parameter and a code.

In: `BadRequest`, raised while a request is read or answered. Out: responses. What this server does
not offer is refused by name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


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
    UNSUPPORTED_PARAMETER = "unsupported_parameter", 400
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


_OFFERED = (
    "POST /v1/chat/completions, /v1/completions, /tokenize, /detokenize, "
    "GET /v1/models, /v1/models/{id}, /live, /ready, /health, /metrics"
)
_NOT_OFFERED = {
    "embeddings": "embeddings are not offered here",
    "responses": "the Responses API is not offered here: use POST /v1/chat/completions",
    "assistants": "assistants are not offered here: use POST /v1/chat/completions",
    "threads": "assistants are not offered here: use POST /v1/chat/completions",
    "load_lora_adapter": "LoRA adapters are not offered here: a server has one model",
    "unload_lora_adapter": "LoRA adapters are not offered here: a server has one model",
    "fine_tuning": "fine-tuning is not offered here",
    "images": "images are not offered here",
    "audio": "audio is not offered here",
    "moderations": "moderations are not offered here",
    "files": "files and batches are not offered here",
    "batches": "files and batches are not offered here",
}
"""What clients of OpenAI may ask for below /v1, in vain."""
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
    kind = path.removeprefix("/v1/").partition("/")[0]
    if not is_method and path.startswith("/v1/") and kind in _NOT_OFFERED:
        message = _NOT_OFFERED[kind]
    code = ErrorCode.METHOD_NOT_ALLOWED if is_method else ErrorCode.UNKNOWN_URL
    return error_response(BadRequest(message, code=code))


async def unforeseen(request: Request, problem: Exception) -> Response:
    """The response to an unexpected exception."""
    number = request_id(request.scope)
    _log.error("request %s failed", number, exc_info=problem)
    words = f"the server failed: {type(problem).__name__} (request {number})"
    return error_response(BadRequest(words, code=ErrorCode.SERVER_ERROR))


def request_id(scope: Mapping[str, object]) -> str:
    """The id of a request, which `request_ids` gave it."""
    return str(scope.get("tessera.request_id", ""))
