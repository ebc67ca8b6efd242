"""Keeps the daemon's registry entries current: registers it, refreshes its heartbeat, and detects that it was replaced.

Runs in a separate thread, because the file and its lock may be slow. If the registry cannot be written, the error is
logged and the write is retried; the daemon keeps serving.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sari.daemon import sockets
from sari.daemon.log import fields, logger
from sari.daemon.service import Service
from sari.protocol.errors import SariError
from sari.protocol.versions import version_key
from sari.registry.model import DaemonEntry, Registry, WorkspaceEntry
from sari.registry.store import Store

_PAUSE_S = 1.0


class Superseded(Exception):
    """Raised when another daemon of the same or a newer version takes precedence."""

    def __init__(self, entry: DaemonEntry) -> None:
        super().__init__(entry.boot_id)
        self.entry = entry


class Heartbeat:
    """Maintains one daemon's registry entries."""

    def __init__(self, store: Store, entry: DaemonEntry, service: Service) -> None:
        self._store = store
        self._entry = entry
        self._service = service
        self._thread = ThreadPoolExecutor(1, "sari-registry")

    def register(self, replaces: frozenset[str]) -> None:
        """Register this daemon, take over the predecessor's workspaces and mark the predecessor as draining, in one
        write.
        """

        def change(registry: Registry) -> Registry:
            rival = best_rival(registry, self._entry, replaces)
            if rival is not None:
                raise Superseded(rival)
            for old in registry.daemons.values():
                if old.boot_id in replaces:
                    registry = registry.with_daemon(replace(old, draining=True))
            for root, place in registry.workspaces.items():
                if place.boot_id in replaces:
                    registry = registry.with_workspace(root, self._place(place))
            return registry.with_daemon(self._entry)

        self._store.update(change)

    def _place(self, place: WorkspaceEntry) -> WorkspaceEntry:
        return replace(
            place,
            boot_id=self._entry.boot_id,
            http_host=sockets.HOST,
            http_port=sockets.port_of(self._service.listeners.http),
        )

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        opened = self._service.workspaces.opened
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._service.settings.heartbeat_s):
                    await opened.wait()
            hurried = opened.is_set()
            opened.clear()
            await self.beat()
            if hurried:
                # Write workspace entries at most once a second, however often workspaces are opened.
                await asyncio.sleep(_PAUSE_S)

    async def beat(self) -> None:
        """Write changes to the registry, and check whether this daemon is still the current one."""
        active = {slot.root: slot.last_active for slot in self._service.workspaces.slots()}
        loop = asyncio.get_running_loop()
        try:
            registry = await loop.run_in_executor(self._thread, self._write, active)
        except SariError as error:
            logger.warning("the registry could not be written %s", fields(error=str(error)))
            return
        mine = registry.daemons.get(self._entry.boot_id)
        rival = best_rival(registry, self._entry, frozenset())
        if rival is not None or (mine is not None and mine.draining and _others(registry, self._entry)):
            self._service.drain("the registry names another daemon")
        elif self._service.draining:
            self._service.undrain()

    def _write(self, active: dict[str, float]) -> Registry:
        def change(registry: Registry) -> Registry:
            mine = registry.daemons.get(self._entry.boot_id, self._entry)
            # Marked as draining, but no other daemon can take over: the successor died.
            draining = mine.draining and bool(_others(registry, self._entry))
            # An older version may have written the file without the fields that it does not know.
            fresh = replace(self._entry, last_seen_ts=time.time(), draining=draining, extra=mine.extra)
            registry = registry.with_daemon(fresh)
            for root, last_active in active.items():
                place = registry.workspaces.get(root)
                if place is not None and place.boot_id != self._entry.boot_id and draining:
                    continue
                ours = self._place(place or WorkspaceEntry(self._entry.boot_id))
                registry = registry.with_workspace(root, replace(ours, last_active_ts=last_active))
            return registry

        return self._store.update(change)

    async def unregister(self) -> None:
        """Remove this daemon's registry entries and its files beside the registry."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(
                self._thread, self._store.update, lambda registry: registry.without_daemons({self._entry.boot_id})
            )
        except SariError as error:
            logger.warning("the registry could not be written %s", fields(error=str(error)))


def best_rival(registry: Registry, entry: DaemonEntry, replaces: frozenset[str]) -> DaemonEntry | None:
    """Return a live daemon that takes precedence: not draining, and either newer or the first of the same version."""
    for other in _others(registry, entry):
        if other.boot_id in replaces:
            continue
        mine, its = version_key(entry.version), version_key(other.version)
        if its > mine or (its == mine and (other.start_ts, other.boot_id) < (entry.start_ts, entry.boot_id)):
            return other
    return None


def _others(registry: Registry, entry: DaemonEntry) -> list[DaemonEntry]:
    others = (other for key, other in registry.daemons.items() if key != entry.boot_id)
    # Daemons without a token predate registry 2.0 and cannot serve our clients.
    return [other for other in others if not other.draining and other.token]
