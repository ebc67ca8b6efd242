"""Buffers activity: a touch is a write to memory, and a flush sends it to the activity store.

A failed flush keeps its data. `background_traffic` decides what counts as activity.
"""

from __future__ import annotations

import asyncio

import structlog

from codehub.domain.errors import CodeHubError
from codehub.ports.activity import ActivityStore
from codehub.proxy.coarse_clock import CoarseClock
from codehub.proxy.connections.pace import ScanBudget

_log = structlog.get_logger()

# The store has a resolution of one second, so more frequent touches add nothing.
RESOLUTION_S = 1.0
# The number of bytes inflated per workspace and second to classify messages: some 10 ms of the proxy's time. A few
# kilobytes on the wire can inflate to gigabytes, and would delay all other requests.
INFLATED_BYTES_PER_S = 8 << 20


class Activity:
    """The last touch of one workspace."""

    __slots__ = ("_buffer", "_inflated", "_inflated_since", "_workspace_id", "quiet_at", "scan_budget")

    def __init__(self, workspace_id: str, buffer: ActivityBuffer) -> None:
        self._workspace_id = workspace_id
        self._buffer = buffer
        self._inflated = 0
        self._inflated_since = 0.0
        self.scan_budget = ScanBudget()
        self.quiet_at = 0.0  # a touch before this (coarse, monotonic) time has no effect

    def touch(self) -> None:
        clock = self._buffer.clock
        if clock.now >= self.quiet_at:
            self._buffer.record(self._workspace_id, ended_silence=clock.now - self.quiet_at)
            self.quiet_at = clock.now + RESOLUTION_S

    def may_inflate(self, size: int) -> bool:
        """Record inflated bytes. Return whether more may be inflated in this second."""
        now = self._buffer.clock.now
        if now - self._inflated_since >= 1.0:
            self._inflated_since = now
            self._inflated = 0
        self._inflated += size
        return self._inflated < INFLATED_BYTES_PER_S


class ActivityBuffer:
    """The touches of all workspaces since the last successful flush."""

    def __init__(
        self, store: ActivityStore, clock: CoarseClock, *, flush_interval_s: float, shortest_ttl_s: float
    ) -> None:
        """`shortest_ttl_s` is the shortest TTL that any workspace may have: its own template's or the installation's."""
        self.clock = clock
        self._store = store
        # A touch is stored at once after a silence of a quarter of the TTL, and otherwise within half of it: together less
        # than the TTL after the last touch that was stored, so that a workspace in use is never put to sleep.
        self._flush_interval_s = min(flush_interval_s, shortest_ttl_s / 2)
        self._urgent_after_s = shortest_ttl_s / 4
        self._touched: dict[str, float] = {}
        self._by_id: dict[str, Activity] = {}
        self._urgent = asyncio.Event()

    def of(self, workspace_id: str) -> Activity:
        activity = self._by_id.get(workspace_id)
        if activity is None:
            activity = self._by_id[workspace_id] = Activity(workspace_id, self)
        return activity

    def record(self, workspace_id: str, *, ended_silence: float) -> None:
        self._touched[workspace_id] = self.clock.unix
        if ended_silence > self._urgent_after_s:
            self._urgent.set()

    @property
    def pending(self) -> dict[str, float]:
        return dict(self._touched)

    async def flush(self) -> None:
        """Flush the buffered touches. Touches made meanwhile, and those that failed, stay for the next flush."""
        batch = dict(self._touched)
        if not batch:
            return
        await self._store.flush(batch)
        for workspace_id, at in batch.items():
            if self._touched.get(workspace_id) == at:
                del self._touched[workspace_id]

    async def run(self) -> None:
        """Flush every interval, and immediately after a touch that ends a long silence. Runs until cancelled."""
        failing = False
        while True:
            try:
                async with asyncio.timeout(self._flush_interval_s):
                    await self._urgent.wait()
            except TimeoutError:
                pass
            self._urgent.clear()
            try:
                await self.flush()
            except CodeHubError as error:
                if not failing:
                    _log.warning("activity is kept until its store is back", error=str(error))
                failing = True
                # Once a second instead of at the next interval: a buffered workspace may be about to be put to sleep.
                await asyncio.sleep(min(1.0, self._flush_interval_s))
                self._urgent.set()
            else:
                failing = False

    def forget_idle(self, live: set[str]) -> None:
        """Drop the records of workspaces without connections and without data to flush."""
        for workspace_id in [i for i in self._by_id if i not in live and i not in self._touched]:
            if self.clock.now > self._by_id[workspace_id].quiet_at + self._urgent_after_s:
                del self._by_id[workspace_id]
