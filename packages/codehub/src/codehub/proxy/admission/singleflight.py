"""Identical concurrent access checks share one query and its result.

A page opens with a burst of requests over several connections; the database is queried once for all of them.
"""

from __future__ import annotations

import asyncio

from codehub.services.workspace_access import AccessSnapshot, WorkspaceAccess


class SingleFlight:
    def __init__(self, access: WorkspaceAccess) -> None:
        self._access = access
        self._under_way: dict[tuple[str, bytes, tuple[bytes, ...]], asyncio.Task[AccessSnapshot]] = {}

    async def do(self, workspace_id: str, cookies: list[bytes], token: bytes) -> AccessSnapshot:
        """Same as `WorkspaceAccess.snapshot`. Cancelling one waiter does not affect the others."""
        key = (workspace_id, token, tuple(cookies))
        task = self._under_way.get(key)
        if task is None:
            asking = self._access.snapshot(workspace_id, cookies=cookies, token=token)
            task = self._under_way[key] = asyncio.create_task(asking, name="access snapshot")

            def over(done: asyncio.Task[AccessSnapshot]) -> None:
                self._under_way.pop(key, None)
                if not done.cancelled():
                    done.exception()  # also retrieved here, because all waiters may have been cancelled

            task.add_done_callback(over)
        return await asyncio.shield(task)

    def close(self) -> None:
        for task in list(self._under_way.values()):
            task.cancel()
