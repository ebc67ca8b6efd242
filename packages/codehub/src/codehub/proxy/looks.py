"""Questions to the gate, shared: those that ask the same while one of them is asking get its answer.

A page opens with a burst of requests over several connections; the database is asked once for them all.
"""

from __future__ import annotations

import asyncio

from codehub.services.gate import Gate, Seen


class Looks:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._under_way: dict[tuple[str, bytes, tuple[bytes, ...]], asyncio.Task[Seen]] = {}

    async def look(self, workspace_id: str, cookies: list[bytes], token: bytes) -> Seen:
        """As `Gate.look`. Whoever gives up waiting leaves the others their answer."""
        key = (workspace_id, token, tuple(cookies))
        task = self._under_way.get(key)
        if task is None:
            asking = self._gate.look(workspace_id, cookies=cookies, token=token)
            task = self._under_way[key] = asyncio.create_task(asking, name="look")

            def over(done: asyncio.Task[Seen]) -> None:
                self._under_way.pop(key, None)
                if not done.cancelled():
                    done.exception()  # seen here too: everyone who asked may be gone

            task.add_done_callback(over)
        return await asyncio.shield(task)

    def close(self) -> None:
        for task in list(self._under_way.values()):
            task.cancel()
