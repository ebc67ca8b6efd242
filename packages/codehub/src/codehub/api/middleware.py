"""Middleware for all requests and responses. Pure ASGI, outermost first:

* `Logged`: a request id, one log line, metrics, and 500 for uncaught exceptions
* `Guarded`: the dashboard's own host name, Origin on mutations, and security headers
* `Bounded`: bodies are application/json and limited in size, rejected before they are read (except file uploads)
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from codehub.api.addresses import client_address, requested_host
from codehub.api.config import ApiConfig
from codehub.api.errors import HttpError, http_error
from codehub.api.metrics import ApiMetrics

_log = structlog.get_logger()

MAX_BODY_BYTES = 1 << 20
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
# Paths that programs may request under any host name.
_FOR_MACHINES = ("/api/", "/health", "/metrics", "/openapi.json")
_UPLOAD = re.compile(r"/api/v1/workspaces/[^/]+/files/")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
}


@dataclass(frozen=True, slots=True)
class Logged:
    app: ASGIApp
    config: ApiConfig
    metrics: ApiMetrics
    ids: Callable[[], str]
    monotonic: Callable[[], float]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else self.ids()
        begun = self.monotonic()
        status = 0

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, note)
            except Exception as error:  # noqa: BLE001 - the last resort: the client always gets an answer
                # As text: a renderer that shows the frames' locals would show passwords.
                _log.error("request failed", path=_shown(scope["path"]), traceback=traceback.format_exc())
                if status == 0:
                    await http_error(error).response()(scope, receive, note)
            took_s = self.monotonic() - begun
            route = _route(scope)
            self.metrics.requests.labels(_method(scope["method"]), route, str(status)).inc()
            self.metrics.seconds.labels(_method(scope["method"]), route).observe(took_s)
            # Successful reads and frequent probes would bury changes and rejected requests.
            read_only = scope["method"] in ("GET", "HEAD") and 200 <= status < 400
            probed = scope["path"].startswith(("/health", "/metrics"))
            say = _log.debug if read_only or probed else _log.info
            say(
                "request",
                method=_method(scope["method"]),
                path=_shown(scope["path"]),
                status=status,
                ms=round(took_s * 1000, 1),
                address=client_address(scope, headers, self.config.trusted_proxies, self.config.proxy_secret),
            )


@dataclass(frozen=True, slots=True)
class Guarded:
    app: ASGIApp
    config: ApiConfig

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        path: str = scope["path"]

        async def guard(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    answered.setdefault(name, value)
                if path.startswith("/api/"):
                    answered.setdefault("Cache-Control", "no-store")
            await send(message)

        if scope["method"] in _SAFE:
            if self._elsewhere(scope, headers):
                await RedirectResponse(self._address(scope), 307)(scope, receive, guard)
                return
        elif (refusal := self._foreign(headers)) is not None:
            await refusal.response()(scope, receive, guard)
            return
        await self.app(scope, receive, guard)

    def _elsewhere(self, scope: Scope, headers: Headers) -> bool:
        """Return whether a browser uses another host name.

        Its cookies could be another program's, because cookies ignore ports.
        """
        host = requested_host(scope, headers, self.config.trusted_proxies, self.config.proxy_secret)
        if host == self.config.public_url.partition("://")[2].lower():
            return False
        by_browser = "sec-fetch-mode" in headers or "origin" in headers
        return by_browser if scope["path"].startswith(_FOR_MACHINES) else True

    def _address(self, scope: Scope) -> str:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path = "/" + raw.decode("latin-1").lstrip("/\\")
        query = scope["query_string"].decode("latin-1")
        return f"{self.config.public_url}{path}{'?' + query if query else ''}"

    def _foreign(self, headers: Headers) -> HttpError | None:
        origins = headers.getlist("origin")
        if any(origin.lower() != self.config.public_url.lower() for origin in origins):
            return HttpError(403, "FORBIDDEN", f"requests that change something come from {self.config.public_url}")
        sites = headers.getlist("sec-fetch-site")
        if any(site.lower() not in ("same-origin", "none") for site in sites):
            return HttpError(403, "FORBIDDEN", "requests that change something do not come from other sites")
        return None


@dataclass(frozen=True, slots=True)
class Bounded:
    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if scope["method"] == "PUT" and _UPLOAD.match(scope["path"]):
            # A file of any kind and size is forwarded to the workspace as it arrives.
            await self.app(scope, receive, send)
            return
        if (refusal := _refused(headers)) is not None:
            await refusal.response()(scope, receive, send)
            return
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > MAX_BODY_BYTES:
                    # The code that reads the body lets this exception through, up to the one place where errors become
                    # answers.
                    refusal = _too_long()
                    raise HTTPException(refusal.status, refusal.message, dict(refusal.headers))
            return message

        await self.app(scope, bounded, send)


def _refused(headers: Headers) -> HttpError | None:
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        return HttpError(400, "INVALID_REQUEST", "Content-Length is not a number")
    # Longer than any valid number; Python would refuse to parse it.
    if len(length) > 18 or int(length) > MAX_BODY_BYTES:
        return _too_long()
    has_body = int(length) > 0 or "transfer-encoding" in headers
    if has_body and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return HttpError(400, "INVALID_REQUEST", "the body must be application/json")
    return None


def _too_long() -> HttpError:
    # The rest of the body is not read: the connection ends with this answer.
    return HttpError(
        413, "PAYLOAD_TOO_LARGE", f"a body may have {MAX_BODY_BYTES} bytes at most", {"Connection": "close"}
    )


def _method(method: str) -> str:
    """Clients may send arbitrary methods; labels and logs contain only known ones."""
    return method if method in (*_SAFE, "POST", "PATCH", "PUT", "DELETE") else "other"


def _route(scope: Scope) -> str:
    """Return the route's pattern: the number of labels must not grow with the requested ids."""
    return getattr(scope.get("route"), "path_format", "none")


def _shown(path: str) -> str:
    return path[:200]
