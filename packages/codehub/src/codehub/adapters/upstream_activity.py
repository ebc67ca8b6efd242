"""Queries a workspace's last activity over HTTP: from its IDE (a profile's `activity_path`) or from its `workspaced`.

The answer is 200 with JSON: `{"active": true}` for right now, optionally with a `reason`, or
`{"last_active_at": "2026-11-16T01:02:03Z"}` (an ISO time or Unix seconds), or Jupyter's list of kernels. Any other answer
reports no work. No answer within a few seconds, a broken one or a server error (5xx) is not an answer: nobody knows.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

from codehub.adapters.workspaced_client import WorkspacedClient
from codehub.domain.busy import Work
from codehub.domain.errors import UpstreamUnavailable
from codehub.ports.instances import Upstream

_TIMEOUT_S = 5.0
# A valid answer is one short line.
_LONGEST_BYTES = 64 << 10
_LONGEST_REASON = 80  # it is shown in a table
_CLIENT = WorkspacedClient()
_SOMEBODY = "the IDE"  # reported as active without a reason


class UpstreamActivity:
    """Implements ports.liveness.AsksActivity. Anything in a workspace may answer here."""

    async def work(self, upstream: Upstream, path: str, now: datetime) -> Work | None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                body = await _get(upstream, path)
        except TimeoutError as error:
            raise UpstreamUnavailable(f"no answer to {path} within {_TIMEOUT_S:g} s") from error
        return None if body is None else _said(body, now)


def _line(text: str) -> str:
    """Make a workspace's text safe to display: one line of printable characters, limited in length."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return (line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 1] + "…") or _SOMEBODY


def _is_busy(kernel: object) -> bool:
    """Return whether an entry of Jupyter's `/api/kernels` is busy."""
    match kernel:
        case {"execution_state": "busy"}:
            return True
        case _:
            return False


async def _get(upstream: Upstream, path: str) -> bytes | None:
    # Not compressed: a few bytes on the wire must not expand to many here.
    async with _CLIENT.request(upstream, "GET", path, {"Host": "localhost", "Accept-Encoding": "identity"}) as answer:
        if answer.status >= 500:
            raise UpstreamUnavailable(f"{path} is answered with status {answer.status}")
        return await answer.read(_LONGEST_BYTES) if answer.status == 200 else None


def _said(body: bytes, now: datetime) -> Work | None:
    try:
        match json.loads(body):
            case {"active": True, "reason": str(reason)}:
                return Work(now, _line(reason))
            case {"active": True}:
                return Work(now, _SOMEBODY)
            case {"last_active_at": str(text)}:
                when = datetime.fromisoformat(text)
                # As UTC: PostgreSQL takes fewer offsets than Python, and would refuse the times of all workspaces.
                return Work(min(when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC), now), _SOMEBODY)
            case {"last_active_at": int(seconds) | float(seconds)}:
                return Work(min(datetime.fromtimestamp(seconds, UTC), now), _SOMEBODY)
            case [*kernels] if any(_is_busy(kernel) for kernel in kernels):
                return Work(now, "a busy notebook kernel")
    # A time out of range and JSON nested too deeply raise other exceptions than ValueError.
    except (ValueError, OverflowError, OSError, RecursionError):
        return None
    return None
