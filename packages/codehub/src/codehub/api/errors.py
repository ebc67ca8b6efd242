"""Maps errors to HTTP in one function: `{"error": {"code", "message"}}` with the matching status and headers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from codehub.domain import errors

_BY_STATUS: Mapping[int, str] = {
    400: "INVALID_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "INVALID_STATE",
    413: "PAYLOAD_TOO_LARGE",
    429: "TOO_MANY_REQUESTS",
    500: "INTERNAL_ERROR",
    502: "UPSTREAM_UNAVAILABLE",
    503: "SERVICE_UNAVAILABLE",
}
# Usually long enough for a restart of the database.
_RETRY_AFTER_S = 5


@dataclass(frozen=True, slots=True)
class HttpError:
    status: int
    code: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        body = json.dumps({"error": {"code": self.code, "message": self.message}}, ensure_ascii=False)
        return Response(
            body.encode("utf-8", "replace"), self.status, dict(self.headers), media_type="application/json"
        )


def http_error(error: Exception) -> HttpError:
    """Return the response for an error. An unexpected error reveals no internals."""
    match error:
        case RequestValidationError() | WebSocketRequestValidationError():
            return _plain(400, "; ".join(_problem(each) for each in error.errors()))
        case HTTPException():
            status = error.status_code if error.status_code in _BY_STATUS else 400
            return HttpError(status, _BY_STATUS[status], _message_of(error), error.headers or {})
        case errors.Invalid():
            return _plain(400, str(error))
        case errors.Unauthorized():
            return _plain(401, str(error), {"WWW-Authenticate": "Bearer"})
        case errors.Denied():
            return _plain(403, str(error))
        case errors.WorkspaceNotFound():
            return HttpError(404, "WORKSPACE_NOT_FOUND", str(error))
        case errors.NotFound():
            return _plain(404, str(error))
        case errors.NameTaken():
            return HttpError(409, "NAME_TAKEN", str(error))
        case errors.WorkspaceLimitExceeded():
            return HttpError(409, "WORKSPACE_LIMIT_EXCEEDED", str(error))
        case errors.Conflict():
            return _plain(409, str(error))
        case errors.LimitExceeded():
            return HttpError(429, "RUNNING_LIMIT_EXCEEDED", str(error))
        case errors.TooManyRequests():
            return _plain(429, str(error), {"Retry-After": str(error.retry_after_s)})
        case errors.UpstreamUnavailable():
            return _plain(502, str(error))
        case errors.Transient() | errors.Unavailable():
            return _plain(503, "the service is not available right now: try again soon", _retry())
        case _:
            return _plain(500, "something went wrong on our side; the log has it under this request's id")


def _plain(status: int, message: str, headers: Mapping[str, str] | None = None) -> HttpError:
    return HttpError(status, _BY_STATUS[status], message, headers or {})


def _retry() -> dict[str, str]:
    return {"Retry-After": str(_RETRY_AFTER_S)}


def _message_of(error: HTTPException) -> str:
    match error.status_code:
        case 404:
            return "there is nothing at this address"
        case 405:
            return "this address does not take that method"
        case _:
            return str(error.detail)


def _problem(problem: Mapping[str, object]) -> str:
    """Name the field and what is wrong with it, never its value: that may be a password."""
    location = problem.get("loc")
    path = [str(part) for part in location] if isinstance(location, tuple | list) else []
    where = ".".join(path[1:] if path[:1] in (["body"], ["query"], ["path"], ["header"]) else path)
    match problem.get("type"):
        case "json_invalid":
            return "the body is not valid JSON"
        case "extra_forbidden":
            return f"{where}: unknown field"
        case "missing":
            return f"{where}: required" if where else "a JSON body is required"
        case _:
            message = str(problem.get("msg", "invalid")).removeprefix("Value error, ")
            return f"{where}: {message}" if where else message
