"""Waits for a backend's answer on behalf of a user: for a bounded time, and the error names the backend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from codehub.domain.errors import BackendDown, UpstreamUnavailable
from codehub.domain.model import Workspace
from codehub.domain.wording import unreachable_text

T = TypeVar("T")

# Some backends accept every request and answer none. Usage takes the engine about two seconds.
ANSWERS_WITHIN_S: Final = 10.0


async def answered(workspace: Workspace, answer: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            return await answer
    except (BackendDown, TimeoutError) as error:
        raise UpstreamUnavailable(f"{unreachable_text(workspace)}: try again later") from error
