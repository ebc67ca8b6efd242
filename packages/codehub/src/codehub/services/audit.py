"""The audit trail: services write it in the transaction of the event, administrators read it.

Reading another user's workspace is recorded once per user, workspace and hour, because a dashboard polls every few seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from codehub.adapters.postgres import audit as statements
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.domain.audit import AuditEvent, AuditFilter, AuditKind
from codehub.services.principal import Clock, Principal

# The actor if no user is signed in.
SYSTEM = "(system)"
COMMAND_LINE = "(command line)"
NOBODY = "(not signed in)"
BY_LINK = "(by link)"
_ONCE_PER = timedelta(hours=1)
_REMEMBERED = 10_000
_PAGES_PER_SWEEP = 200
# How many events of one kind by one user, and by strangers, are kept: some 3 MB.
KEPT = 10_000


async def note(
    tx: Transaction,
    kind: AuditKind,
    at: datetime,
    who: Principal | None = None,
    *,
    actor: str = NOBODY,
    address: str = "",
    target: str = "",
    workspace_id: str | None = None,
    detail: Mapping[str, object] | None = None,
    **more: object,
) -> None:
    """Record an event, as the last statement of a transaction. `actor` is used if no user (`who`) is signed in."""
    await statements.record(
        tx,
        AuditEvent(
            at=at,
            event=kind,
            actor=actor if who is None else who.username,
            actor_id=None if who is None else who.user_id,
            token_id=None if who is None else who.token_id or (who.bearer_id if who.by_token else None),
            address=address or ("" if who is None else who.address),
            target=target[:255],
            workspace_id=workspace_id,
            detail={**(detail or {}), **more},
        ),
    )


@dataclass(slots=True)
class Visits:
    """Visits to other users' workspaces that this process recorded recently."""

    clock: Clock
    _noted: dict[tuple[str, ...], datetime] = field(default_factory=dict)

    def is_new(self, *key: str) -> bool:
        now = self.clock()
        if (before := self._noted.get(key)) is not None and now - before < _ONCE_PER:
            return False
        if len(self._noted) >= _REMEMBERED:
            self._noted.clear()
        self._noted[key] = now
        return True


@dataclass(frozen=True, slots=True)
class AuditPage:
    items: list[AuditEvent]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Audit:
    database: Database
    clock: Clock
    retention: timedelta
    kept: int = KEPT

    async def newest(self, who: Principal, which: AuditFilter, before: int | None, limit: int) -> AuditPage:
        who.must_be_admin()
        async with self.database.transaction() as tx:
            found = await statements.newest_first(tx, which, before=before, limit=limit + 1)
        more = len(found) > limit
        return AuditPage(found[:limit], str(found[limit - 1].id) if more else None)

    async def after(self, who: Principal, which: AuditFilter, after: int, limit: int) -> AuditPage:
        """Return events oldest first, for clients that follow the trail. The cursor is always set."""
        who.must_be_admin()
        async with self.database.transaction() as tx:
            found = await statements.oldest_first(tx, which, after=after, limit=limit)
        return AuditPage(found, str(found[-1].id if found else after))

    async def sweep(self) -> int:
        """Remove events older than the retention, and surplus ones, in small batches. Returns the number removed."""
        return await self._remove_old() + await self._remove_surplus()

    async def _remove_old(self) -> int:
        removed = 0
        before = self.clock() - self.retention
        for _ in range(_PAGES_PER_SWEEP):
            async with self.database.transaction() as tx:
                gone = await statements.purge(tx, before, self.retention.total_seconds())
                if gone:
                    await note(
                        tx, AuditKind.PURGED, self.clock(), actor=SYSTEM, events=gone, before=before.isoformat()
                    )
            removed += gone
            if not gone:
                break
        return removed

    async def _remove_surplus(self) -> int:
        """Remove what a user or strangers did so often that it fills the disk, and record that. The newest events stay.

        Each kind is counted by itself, so that nobody pushes out what else they did.
        """
        removed = 0
        async with self.database.transaction() as tx:
            found = await statements.floods(tx, self.kept, (NOBODY, BY_LINK))
        for flood in found:
            for _ in range(_PAGES_PER_SWEEP):
                async with self.database.transaction() as tx:
                    gone, until = await statements.drop_oldest(tx, flood, self.kept)
                    if until is not None:
                        detail = {"events": gone, "event": flood.event, "until": until.isoformat()}
                        await note(
                            tx, AuditKind.DROPPED, self.clock(), actor=SYSTEM, target=flood.actor, detail=detail
                        )
                removed += gone
                if not gone:
                    break
        return removed
