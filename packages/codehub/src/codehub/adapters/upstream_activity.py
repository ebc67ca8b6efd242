"""Asks an IDE over HTTP when someone last worked in it (a profile's `activity_path`).

The answer is 200 with JSON: `{"active": true}` for right now, or `{"last_active_at": "2026-11-16T01:02:03Z"}` (an ISO time
or Unix seconds); or Jupyter's list of kernels, of which a busy one is at work. Anything else, and no answer within a few
seconds, says nothing.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import httpx

from codehub.adapters.workspace_http import WorkspaceTransport
from codehub.ports.instances import Upstream

_TIMEOUT_S = 5.0
# An answer is a line; whatever is longer is not one.
_LONGEST_BYTES = 64 << 10


class UpstreamActivity:
    """ports.liveness.AsksActivity. Whatever runs in a workspace may answer here, so no answer is ever an error."""

    async def last_active(self, upstream: Upstream, path: str, now: datetime) -> datetime | None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                body = await _get(upstream, path)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, OSError):
            return None
        return None if body is None else _said(body, now)


async def _get(upstream: Upstream, path: str) -> bytes | None:
    transport = WorkspaceTransport(upstream.socket_path, upstream.uid) if upstream.socket_path else None
    address = "http://localhost" if upstream.socket_path else f"http://{upstream.host}:{upstream.port}"
    # Not compressed: a few bytes on the wire must not become many here.
    headers = {"Accept-Encoding": "identity", **(dict([upstream.secret]) if upstream.secret else {})}
    async with (
        httpx.AsyncClient(transport=transport, timeout=_TIMEOUT_S, trust_env=False) as client,
        client.stream("GET", address + path, headers=headers) as answer,
    ):
        if answer.status_code != 200:
            return None
        body = b""
        async for chunk in answer.aiter_raw():
            body += chunk
            if len(body) > _LONGEST_BYTES:
                return None
        return body


def _said(body: bytes, now: datetime) -> datetime | None:
    try:
        match json.loads(body):
            case {"active": True}:
                return now
            case list(kernels):
                return max((at for kernel in kernels if (at := _kernel(kernel, now)) is not None), default=None)
            case {"last_active_at": str(text)}:
                return _time(text, now)
            case {"last_active_at": int(seconds) | float(seconds)}:
                return min(datetime.fromtimestamp(seconds, UTC), now)
    # A time beyond all years, and JSON nested deeper than a parser goes, are errors of their own kinds.
    except (ValueError, OverflowError, OSError, RecursionError):
        return None
    return None


def _kernel(kernel: object, now: datetime) -> datetime | None:
    match kernel:
        case {"execution_state": "busy"}:
            return now
        case {"last_activity": str(text)}:
            return _time(text, now)
    return None


def _time(text: str, now: datetime) -> datetime:
    when = datetime.fromisoformat(text)
    return min(when if when.tzinfo else when.replace(tzinfo=UTC), now)
