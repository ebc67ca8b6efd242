"""Progress of one attempt: reported from any thread at any rate, written to the row at most once a second.

The first report is written early, so that the user sees at once that something happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from codehub.control.progress_deadline import ProgressDeadline
from codehub.domain.errors import BackendDown, Transient
from codehub.domain.model import Progress, Workspace
from codehub.ports.control_store import ControlStore

_EVERY_S: Final = 1.0
_FIRST_S: Final = 0.2


class ProgressReport:
    def __init__(self, store: ControlStore, epoch: int, workspace: Workspace, deadline: ProgressDeadline) -> None:
        self._store = store
        self._epoch = epoch
        self._workspace = workspace
        self._deadline = deadline
        self._latest: Progress | None = None
        self._written: Progress | None = None

    def take(self, progress: Progress) -> None:
        """Cheap and thread-safe. Every report counts as progress."""
        self._latest = progress
        self._deadline.renew()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write reports while the work runs."""
        writer = asyncio.create_task(self._write())
        try:
            yield
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(_FIRST_S if self._written is None else _EVERY_S)
            if self._latest is not None and self._latest != self._written:
                latest = self._latest
                try:
                    await self._store.note_progress(self._epoch, self._workspace, latest)
                except (BackendDown, Transient):
                    continue  # progress is best effort
                self._written = latest
