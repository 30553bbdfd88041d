"""Errors of the server, as clients expect them: an object with a message, whatever went wrong.

In: what was wrong. Out: a response of Starlette. Nobody gets plain text, nor a traceback.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tessera.driver.serve.completion_requests import BadRequest, ErrorCode

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_OFFERED = "POST /v1/completions, GET /v1/models, GET /v1/models/{id}, GET /health, GET /metrics"
_KINDS = {429: "requests"}
_log = logging.getLogger("tessera.serve")


def error_value(bad: BadRequest) -> dict[str, object]:
    """The body of an error."""
    kind = _KINDS.get(bad.status, "invalid_request_error" if bad.status < 500 else "server_error")
    error = {"message": bad.message, "type": kind, "param": bad.field, "code": bad.code}
    return {"error": error}


def error_response(bad: BadRequest) -> Response:
    """The answer to a request that is refused."""
    from starlette.responses import JSONResponse

    headers = {"Retry-After": str(bad.retry_s)} if bad.retry_s else {}
    if bad.code is ErrorCode.INVALID_API_KEY:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_value(bad), bad.status, headers)


async def not_offered(request: Request, problem: Exception) -> Response:
    """A path or a method that is not served here."""
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
    """What should not have happened."""
    _log.error("a request failed", exc_info=problem)
    words = f"the server failed: {type(problem).__name__}"
    return error_response(BadRequest(words, code=ErrorCode.SERVER_ERROR))
