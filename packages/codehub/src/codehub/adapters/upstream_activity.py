"""Asks an IDE over HTTP when someone last worked in it (a profile's `activity_path`).

The answer is 200 with JSON: `{"active": true}` for right now, or `{"last_active_at": "2026-11-16T01:02:03Z"}` (an ISO time
or Unix seconds). Anything else, and no answer within a few seconds, says nothing.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import httpx

from codehub.ports.instances import Upstream

_PATIENCE_S = 5.0
# An answer is a line; whatever is longer is not one.
_LONGEST_BYTES = 64 << 10


class UpstreamActivity:
    """ports.liveness.AsksActivity."""

    async def last_active(self, upstream: Upstream, path: str, now: datetime) -> datetime | None:
        transport = httpx.AsyncHTTPTransport(uds=upstream.socket_path or None)
        address = "http://localhost" if upstream.socket_path else f"http://{upstream.host}:{upstream.port}"
        headers = dict([upstream.secret]) if upstream.secret else {}
        try:
            async with httpx.AsyncClient(transport=transport, timeout=_PATIENCE_S, trust_env=False) as client:
                async with client.stream("GET", address + path, headers=headers) as answer:
                    if answer.status_code != 200:
                        return None
                    body = b""
                    async for chunk in answer.aiter_bytes():
                        body += chunk
                        if len(body) > _LONGEST_BYTES:
                            return None
            return _said(json.loads(body), now)
        except (httpx.HTTPError, OSError, ValueError):
            return None


def _said(content: object, now: datetime) -> datetime | None:
    match content:
        case {"active": True}:
            return now
        case {"last_active_at": str(text)}:
            when = datetime.fromisoformat(text)
            return min(when if when.tzinfo else when.replace(tzinfo=UTC), now)
        case {"last_active_at": int(seconds) | float(seconds)}:
            return min(datetime.fromtimestamp(seconds, UTC), now)
    return None
