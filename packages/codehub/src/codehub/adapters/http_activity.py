"""ports.liveness over HTTP: `GET activity_path` on the instance itself (docs/control-plane.md says what it may answer).

200 with JSON: `{"active": true}` is activity now; `{"last_activity": "2026-11-16T12:00:00Z"}` (or a Unix time) is activity
then. Anything else, and no answer in time, is none.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from codehub.ports.instances import Upstream

_PATIENCE_S: Final = 3.0
_LONGEST_ANSWER: Final = 64 * 1024


class HttpActivity:
    async def last_active(self, upstream: Upstream, path: str, now: datetime) -> datetime | None:
        transport = httpx.AsyncHTTPTransport(uds=upstream.socket_path or None)
        base = "http://workspace" if upstream.socket_path else f"http://{upstream.host}:{upstream.port}"
        headers = dict([upstream.secret]) if upstream.secret else {}
        try:
            async with httpx.AsyncClient(transport=transport, timeout=_PATIENCE_S, headers=headers) as client:
                answer = await client.get(base + path)
        except (httpx.HTTPError, OSError, ValueError):
            return None
        if answer.status_code != 200 or len(answer.content) > _LONGEST_ANSWER:
            return None
        return _read(answer.content, now)


def _read(body: bytes, now: datetime) -> datetime | None:
    try:
        said: Any = json.loads(body)
        if not isinstance(said, dict):
            return None
        if said.get("active") is True:
            return now
        at = said.get("last_activity")
        if isinstance(at, int | float) and not isinstance(at, bool):
            return min(now, datetime.fromtimestamp(at, UTC))
        if isinstance(at, str):
            told = datetime.fromisoformat(at)
            return min(now, told if told.tzinfo else told.replace(tzinfo=UTC))
    except (ValueError, OverflowError, OSError):
        return None
    return None
