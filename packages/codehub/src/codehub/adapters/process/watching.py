"""Hints about instances that ended: one pidfd per supervisor, no polling."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

from codehub.adapters.process.records import Record


class ExitWatch:
    """Notifies every open `hints()` of exits of the supervisors that it follows, and of what is passed to `tell`."""

    def __init__(self) -> None:
        self._open: list[asyncio.Queue[str]] = []
        self._fds: dict[str, tuple[str, int]] = {}  # by workspace: (identity, pidfd)

    def tell(self, workspace_id: str) -> None:
        for queue in self._open:
            queue.put_nowait(workspace_id)

    def follow(self, record: Record) -> None:
        """Follow a supervisor. Does nothing without listeners."""
        if not self._open or self._fds.get(record.workspace_id, ("", 0))[0] == record.identity:
            return
        self._forget(record.workspace_id)
        try:
            fd = os.pidfd_open(record.pid)
        except OSError:
            self.tell(record.workspace_id)
            return
        self._fds[record.workspace_id] = (record.identity, fd)
        asyncio.get_running_loop().add_reader(fd, self._ended, record.workspace_id)
        if not record.alive:  # another process got the pid in between
            self._ended(record.workspace_id)

    async def hints(self, running: list[Record]) -> AsyncIterator[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._open.append(queue)
        try:
            for record in running:
                self.follow(record)
            while True:
                yield await queue.get()
        finally:
            self._open.remove(queue)
            if not self._open:
                for workspace_id in list(self._fds):
                    self._forget(workspace_id)

    def _ended(self, workspace_id: str) -> None:
        self._forget(workspace_id)
        self.tell(workspace_id)

    def _forget(self, workspace_id: str) -> None:
        found = self._fds.pop(workspace_id, None)
        if found is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closing
                asyncio.get_running_loop().remove_reader(found[1])
            os.close(found[1])
