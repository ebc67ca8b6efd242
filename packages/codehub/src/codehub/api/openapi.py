"""Error responses in OpenAPI. FastAPI's own 422 is not used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from codehub.api.upgrades import upgrades
from codehub.api.views import ErrorView

_WHY: Mapping[int, str] = {
    400: "The request itself is wrong: INVALID_REQUEST.",
    401: "Not signed in, or the session has ended: UNAUTHORIZED.",
    403: "Not allowed, or sent from a foreign origin: FORBIDDEN.",
    404: "Not found: NOT_FOUND or WORKSPACE_NOT_FOUND.",
    409: "Not from this state: INVALID_STATE. Or the name is in use: NAME_TAKEN. Or the owner has "
    "as many workspaces as allowed: WORKSPACE_LIMIT_EXCEEDED.",
    413: "The body is too long: PAYLOAD_TOO_LARGE.",
    429: "RUNNING_LIMIT_EXCEEDED, or TOO_MANY_REQUESTS with Retry-After.",
    502: "The backend of the workspace does not answer: UPSTREAM_UNAVAILABLE.",
    503: "The database does not answer: SERVICE_UNAVAILABLE with Retry-After.",
}
DESCRIPTION = """Workspaces that sleep, archive themselves and wake when they are opened.

Sign in with `POST /api/v1/login` (a cookie), or send an API token as `Authorization: Bearer cht_…`. Errors are
`{"error": {"code", "message"}}`. Lists are `{items, page, per_page, total}`."""


def may_answer(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return a route's `responses`. 400 and 503 are always included.

    By reference: for a `model`, FastAPI would build a serializer for each status of each route.
    """
    return {status: _refusal(status) for status in sorted({400, 503, *statuses})}


def signed_in(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return may_answer(401, 403, *statuses)


def describe(app: FastAPI, session_cookie: str, version: str) -> dict[str, Any]:
    schema = get_openapi(
        title="CodeHub", version=version, description=DESCRIPTION, routes=app.routes, openapi_version="3.1.0"
    )
    for operations in schema["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    schema["paths"] |= upgrades(_refusals())
    schemas = schema["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    error = ErrorView.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= error.pop("$defs") | {ErrorView.__name__: error}
    schema["components"]["securitySchemes"] = {
        "session": {"type": "apiKey", "in": "cookie", "name": session_cookie},
        "token": {"type": "http", "scheme": "bearer", "bearerFormat": "cht_…"},
    }
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            if path.startswith("/api/") and not path.endswith("/login"):
                operation["security"] = [{"session": []}, {"token": []}]
            elif path.startswith("/_codehub/"):
                operation["security"] = [{"token": []}]
    return schema


def _refusals() -> dict[str, Any]:
    return {str(status): _refusal(status) for status in (400, 401, 403, 404, 409, 502, 503)}


def _refusal(status: int) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{ErrorView.__name__}"}
    return {"description": _WHY[status], "content": {"application/json": {"schema": schema}}}
