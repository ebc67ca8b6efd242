"""The GC Runner removes archives that are no longer needed. It touches only archives, and any doubt skips the cycle."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import structlog

from codehub.control.deps import GcSettings
from codehub.control.heartbeat import Heartbeat
from codehub.domain.gc import Claim, is_due, is_protected
from codehub.ports.archives import ArchivePlace, Archives
from codehub.ports.clock import Clock
from codehub.ports.control_store import GcStore
from codehub.ports.leadership import Lease

_log = structlog.get_logger()

# Delay of the first cycle: a new leader has more urgent work. `_BEAT_S`: heartbeat interval during a long pause.
_FIRST_AFTER_S = 30.0
_BEAT_S = 60.0


class GcRunner:
    def __init__(
        self,
        store: GcStore,
        archives: Archives,
        lease: Lease,
        clock: Clock,
        settings: GcSettings,
        heartbeat: Heartbeat,
    ) -> None:
        self._store = store
        self._archives = archives
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._heartbeat = heartbeat

    async def run(self) -> None:
        await self._rest(min(_FIRST_AFTER_S, self._settings.interval_s))
        while True:
            async with self._heartbeat.tick():
                await self.tick()
            await self._rest(self._settings.interval_s)

    async def tick(self) -> None:
        """One cycle. A failed listing or query ends it: nothing is removed based on incomplete information."""
        retention = timedelta(seconds=self._settings.deleted_retention_s)
        # Committed before the first removal: from here on, undelete is refused.
        await self._store.begin_purges(self._lease.epoch, self._clock.now(), retention)
        places = [place async for place in self._archives.list_places()]
        claims = await self._claims(places)
        orphans = [place for place in places if not is_protected(claims.get(place.workspace_id), place.op_id)]
        await self._store.note_orphans(self._lease.epoch, orphans, self._clock.now())
        now = self._clock.now()
        grace = timedelta(seconds=self._settings.orphan_grace_s)
        due = [place for place, first_seen_at in await self._store.orphans() if is_due(first_seen_at, now, grace)]
        for place in due:
            await self._remove(place)

    async def _remove(self, place: ArchivePlace) -> None:
        """Check again right before the removal: an archive that is protected by now is kept."""
        claim = (await self._claims([place])).get(place.workspace_id)
        if is_protected(claim, place.op_id):
            return
        await self._archives.remove(place, self._lease.fence)
        await self._store.forget_archive(self._lease.epoch, place)
        _log.info("an orphaned archive is removed", workspace_id=place.workspace_id, op_id=place.op_id)

    async def _claims(self, places: list[ArchivePlace]) -> Mapping[str, Claim]:
        return await self._store.claims({place.workspace_id for place in places}, self._settings.keep)

    async def _rest(self, seconds: float) -> None:
        while seconds > 0:
            self._heartbeat.beat()
            await asyncio.sleep(min(seconds, _BEAT_S))
            seconds -= _BEAT_S
