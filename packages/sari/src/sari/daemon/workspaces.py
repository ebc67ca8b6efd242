"""The open workspaces. A workspace is opened when a call needs it and closed when it is unused, never both at once.

Knows how to open and close workspaces. The daemon decides which are in use.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from sari.daemon.log import fields, logger
from sari.index.store import persisted_bytes
from sari.protocol.tooling import OpenWorkspace, WorkspaceOpener

# Each one keeps its watches and its index in memory, in case a client returns.
MOST_UNUSED = 8
# An estimate: from about this size on (30,000 files), listing a tree and using its persisted index is faster than
# searching the tree.
_LARGE_INDEX_BYTES = 10 << 20


class Slot:
    """One root. `lock` is held while it opens or closes; `running` calls keep it open."""

    __slots__ = ("last_active", "lock", "opened", "root", "running", "unused_since")

    def __init__(self, root: str) -> None:
        self.root = root
        self.lock = asyncio.Lock()
        self.opened: OpenWorkspace | None = None
        self.running = 0
        self.unused_since: float | None = None
        self.last_active = time.time()


class Workspaces:
    """All roots that are open or being opened."""

    def __init__(self, opener: WorkspaceOpener, data_dir: Path, threads: Executor) -> None:
        self._opener = opener
        self._data_dir = data_dir
        self._threads = threads
        self._slots: dict[str, Slot] = {}
        # Set when a workspace was opened, so that the registry is updated soon.
        self.opened = asyncio.Event()
        # Set when a workspace was opened or closed, so that the list of warm roots is updated soon.
        self.changed = asyncio.Event()

    def slots(self) -> list[Slot]:
        """Return all slots."""
        return list(self._slots.values())

    def get(self, root: str) -> Slot | None:
        """Return the slot of a root that is open or opening."""
        return self._slots.get(root)

    def is_warm(self, root: str) -> bool:
        """Whether a search in this root is faster than reading its files: it is indexed and watched, or it is large and
        was indexed before.
        """
        slot = self._slots.get(root)
        if slot is None or slot.opened is None:
            return persisted_bytes(Path(root), self._data_dir) >= _LARGE_INDEX_BYTES
        return slot.opened.is_warm()

    async def enter(self, root: str) -> Slot:
        """Open a root if necessary and keep it open until `leave`."""
        slot = self._slots.get(root)
        if slot is None:
            slot = self._slots[root] = Slot(root)
        slot.running += 1
        try:
            async with slot.lock:
                if slot.opened is None:
                    await self._open(slot)
        except BaseException:
            self.leave(slot)
            raise
        slot.last_active = time.time()
        return slot

    async def _open(self, slot: Slot) -> None:
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self._opener, Path(slot.root), self._data_dir)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            # The thread cannot be stopped. What it opens is kept in the slot, which is closed when it is unused;
            # otherwise its threads, watches and lock would stay for as long as the daemon runs.
            await asyncio.wait([work])
            if work.exception() is None:
                self._is_open(slot, work.result())
            raise
        self._is_open(slot, work.result())

    def _is_open(self, slot: Slot, opened: OpenWorkspace) -> None:
        slot.opened = opened
        self.opened.set()
        self.changed.set()
        logger.info("workspace opened %s", fields(root=slot.root))

    def leave(self, slot: Slot) -> None:
        """Release a slot after a call."""
        slot.running -= 1
        slot.last_active = time.time()
        if slot.running == 0 and slot.opened is None and not slot.lock.locked():
            self._slots.pop(slot.root, None)

    async def close_unused(self, is_used: Callable[[str], bool], idle_s: float, now: float) -> None:
        """Close workspaces that were unused for the idle time, and the least recently used if there are too many."""
        unused: list[tuple[float, Slot]] = []
        for slot in self.slots():
            if slot.running or is_used(slot.root):
                slot.unused_since = None
                continue
            if slot.unused_since is None:
                slot.unused_since = now
            unused.append((slot.unused_since, slot))
        unused.sort(key=lambda one: one[0])
        for number, (since, slot) in enumerate(unused):
            too_many = len(unused) - number > MOST_UNUSED
            if (now - since >= idle_s or too_many) and not slot.lock.locked():
                await self._close(slot)

    async def close_all(self) -> None:
        """Close all workspaces, used or not, because the daemon ends."""
        await asyncio.gather(*(self._close(slot, even_used=True) for slot in self.slots()))

    async def _close(self, slot: Slot, even_used: bool = False) -> None:
        async with slot.lock:
            # A call may have entered while this waited for the lock.
            if slot.running and not even_used:
                return
            opened, slot.opened = slot.opened, None
            if opened is not None:
                try:
                    await asyncio.get_running_loop().run_in_executor(self._threads, opened.close)
                    logger.info("workspace closed %s", fields(root=slot.root))
                except Exception:  # noqa: BLE001 - the daemon keeps running, with or without this index
                    logger.exception("workspace did not close well %s", fields(root=slot.root))
        self.changed.set()
        if not slot.running:
            self._slots.pop(slot.root, None)
