"""The outcome of an admission decision: forward the request (`Admission`), or send an answer (`Reply`)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from math import inf
from typing import Protocol

from codehub.proxy.activity.background_traffic import BackgroundTraffic
from codehub.proxy.activity.buffer import Activity
from codehub.proxy.connections.upstream import UpstreamPool
from codehub.proxy.http1.headers import PathRewrite
from codehub.proxy.http1.messages import RequestHead
from codehub.proxy.tab import TabScript

Credential = tuple[bytes, bytes]  # (workspace id, the secret as received)


@dataclass(slots=True)
class Target:
    """One instance of one workspace, as used by the data path."""

    workspace_id: bytes
    pool: UpstreamPool
    rewrite: PathRewrite
    background: BackgroundTraffic
    activity: Activity
    close_code: int  # sent to its WebSockets when the proxy shuts down
    tab: TabScript | None = None  # inserted into the IDE's pages


@dataclass(slots=True)
class Admission:
    """A credential that may use a target until `fresh_until` (coarse monotonic time) without another check."""

    credential: Credential
    target: Target
    host: bytes  # the Host that a browser must use; empty if any is allowed (an API token)
    origin: bytes
    fresh_until: float
    rising: bool = False
    by_link: bool = False  # anybody may have it
    renew_at: float = inf  # the next use after this time triggers a refresh in the background


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer from the proxy itself."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())

    def encoded(self, *, close: bool, head_only: bool) -> bytes:
        out = [
            b"HTTP/1.1 %d %b" % (self.status, HTTPStatus(self.status).phrase.encode()),
            b"Content-Length: %d" % len(self.body),
            b"Cache-Control: no-store",
            b"Referrer-Policy: no-referrer",
            b"X-Content-Type-Options: nosniff",
            *(b"%b: %b" % header for header in self.headers),
        ]
        if close:
            out.append(b"Connection: close")
        out.append(b"\r\n" if head_only else b"\r\n" + self.body)
        return b"\r\n".join(out)


_CODES = {
    400: "INVALID_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "WORKSPACE_NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "PAYLOAD_TOO_LARGE",
    502: "UPSTREAM_UNAVAILABLE",
    503: "SERVICE_UNAVAILABLE",
}


def refusal(status: int, message: str, *headers: tuple[bytes, bytes]) -> Reply:
    """Return an error in the API's format, for requests that are not navigations."""
    code = _CODES.get(status, "INVALID_REQUEST" if status < 500 else "INTERNAL_ERROR")
    body = json.dumps({"error": {"code": code, "message": message}}, ensure_ascii=False).encode() + b"\n"
    return Reply(status, body, ((b"Content-Type", b"application/json"), *headers))


class Admitter(Protocol):
    """Decides about requests. `recall` is called for every request and does no I/O; `decide` may."""

    def recall(self, request: RequestHead, cookies: list[bytes]) -> Admission | None: ...

    async def decide(
        self, request: RequestHead, cookies: list[bytes], *, failed: Admission | None
    ) -> Admission | Reply:
        """`failed` is the admission whose upstream was just found unreachable."""
        ...

    def renew(self, admission: Admission) -> None:
        """Start to renew an admission that expires soon. Returns immediately; the renewal runs in the background."""
        ...
