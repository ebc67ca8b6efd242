"""Ends the work on an operation that its owner cancelled. The row says whether it was; a wake only makes it quicker."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

from codehub.domain.errors import BackendDown, Transient
from codehub.domain.model import Workspace
from codehub.domain.transitions import cancels_to, is_cancelled
from codehub.ports.control_store import ControlStore

T = TypeVar("T")

# Without any hint, the row is read this often while work goes on that can be cancelled.
_POLL_INTERVAL_S: Final = 10.0


class OperationCancelled(Exception):
    """The work was ended. The next resync of the row decides how to continue."""


class CancellationWatch:
    def __init__(self, store: ControlStore) -> None:
        self._store = store
        self._hints: dict[str, asyncio.Event] = {}

    def hint(self, ids: Iterable[str]) -> None:
        """Somebody changed these rows."""
        for workspace_id in ids:
            if event := self._hints.get(workspace_id):
                event.set()

    async def run(self, workspace: Workspace, work: Coroutine[Any, Any, T]) -> T:
        """The work's result. Raises OperationCancelled once its own clean-up is over."""
        if cancels_to(workspace) is None:
            return await work
        task = asyncio.ensure_future(work)
        watch = asyncio.create_task(self._until_cancelled(workspace))
        try:
            await asyncio.wait([task, watch], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            watch.result()  # a bug of the watch is not taken for a cancellation
            raise OperationCancelled(workspace.operation)
        finally:
            task.cancel()
            watch.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)

    async def _until_cancelled(self, workspace: Workspace) -> None:
        event = self._hints[workspace.id] = asyncio.Event()
        try:
            while True:
                try:
                    async with asyncio.timeout(_POLL_INTERVAL_S):
                        await event.wait()
                except TimeoutError:
                    pass
                event.clear()
                try:
                    found = await self._store.load([workspace.id])
                except (BackendDown, Transient):
                    continue
                if found and is_cancelled(found[0].workspace):
                    return
        finally:
            if self._hints.get(workspace.id) is event:
                del self._hints[workspace.id]
