"""Archives and restores a workspace repeatedly, with coordinators that are each killed -9 at a different point.

Every coordinator is a complete `codehub serve coordinator` on real PostgreSQL. It first continues what the previous one
left, and must complete it correctly. Then it gets the next step, and dies at its point during that step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codehub.adapters.objectstore.layout import META_SUFFIX
from codehub.adapters.objectstore.store import Store
from codehub.domain.gc import archive_key_of
from codehub.domain.model import DesiredState, Phase
from testing.codehub.installation import Coordinator, Installation, until
from testing.codehub.trees import Fingerprint, differences, fingerprint, make_rich_tree

KEPT = 2  # generations, as CODEHUB_ARCHIVE_KEEP is by default

# The named points, in their order. `bytes` is passed for every chunk.
PROVISION = ("commit:NONE→PROVISIONING", "provision:staged", "provision:swapped", "commit:PROVISIONING→NONE")
ARCHIVE = (
    "commit:NONE→ARCHIVING",
    "archive:before-data",
    "archive:bytes",
    "archive:after-data",
    "archive:verified",
    "archive:after-meta",
    "commit:ARCHIVING→ARCHIVING",
    "deprovision:fenced",
    "deprovision:renamed",
    "deprovision:half-removed",
    "deprovision:removed",
    "commit:ARCHIVING→NONE",
)
RESTORE = (
    "commit:NONE→RESTORING",
    "restore:staged",
    "restore:bytes",
    "restore:unpacked",
    "restore:swapped",
    "commit:RESTORING→NONE",
)


@dataclass
class KillChain:
    """The chain.

    `files` returns where the home's files are, `leftovers` what must not exist while no operation is in progress.
    """

    here: Installation
    store: Store
    files: Path | Callable[[], Path]
    leftovers: Callable[[], list[str]]
    owner: tuple[int, int] | None
    exact: bool = True
    pick: Callable[[str], int] = lambda point: 1  # which occurrence of a point is meant
    before: Fingerprint = field(default_factory=dict)
    ops: list[str] = field(default_factory=list)

    async def provision(self, points: Sequence[str]) -> None:
        await self.here.create(DesiredState.STANDBY)
        for point in points:
            await self.here.coordinator(point).died()

    async def cycle(self, archive: Sequence[str], restore: Sequence[str]) -> None:
        """Archive and restore, with coordinators that are killed at these points in turn."""
        first, *others = archive
        victim = self._armed(first)
        await self._rested(victim)
        await self.here.ask(DesiredState.ARCHIVED)
        await victim.died()
        self._nothing_lost(first, op := (await self.here.now()).archive_op_id)
        for point in others:
            await self._armed(point).died()
            self._nothing_lost(point, (await self.here.now()).archive_op_id)

        first, *others = restore
        victim = self._armed(first)
        row = await self.here.reaches(Phase.ARCHIVED)
        assert row.archive_op_id is not None
        assert op in (row.archive_op_id, *self.ops, None), f"{archive}: carried on under the same name"
        self.ops.append(row.archive_op_id)
        assert row.archive_key == archive_key_of(row.id, row.archive_op_id)
        assert not self._files.exists(), archive
        assert self._stored() == self._whole(self.ops), f"{archive}: every archive once, and no half of one"
        await until(self._tidied, f"{archive}: nothing is left over")
        await self.here.ask(DesiredState.STANDBY)
        await victim.died()
        for point in others:
            await self._armed(point).died()

    async def end(self) -> None:
        """Run a last coordinator that is not killed. Its GC keeps only the newest generations."""
        self.here.configure(COORDINATOR_GC_INTERVAL="1")
        last = self.here.coordinator()
        await self._rested(last)
        needless = sorted(self.ops[:-KEPT])

        async def noted() -> bool:
            async with self.here.database.transaction() as tx:
                rows = await (await tx.execute("SELECT op_id FROM archive_orphans ORDER BY op_id")).fetchall()
            return [row["op_id"] for row in rows] == needless

        async def collected() -> bool:
            return self._stored() == self._whole(self.ops[-KEPT:])

        await until(noted, "the GC has noted what nobody needs")
        assert self._stored() == self._whole(self.ops), "not before their time"
        async with self.here.database.transaction() as tx:
            await tx.execute("UPDATE archive_orphans SET first_seen_at = first_seen_at - interval '3 hours'")
        await until(collected, "the GC has left the kept generations")
        assert self._changes() == []

    @property
    def _files(self) -> Path:
        """Return the current path: a claim's volume is another directory after each restore."""
        return self.files if isinstance(self.files, Path) else self.files()

    def _armed(self, point: str) -> Coordinator:
        return self.here.coordinator(point, nth=self.pick(point))

    async def _rested(self, coordinator: Coordinator) -> None:
        """Wait until the coordinator leads and the home is complete and unchanged."""
        await self.here.leads(coordinator)
        row = await self.here.reaches(Phase.STANDBY)
        assert (row.error_reason, row.error_count) == (None, 0)
        if not self.before:
            make_rich_tree(self._files, owner=self.owner)
            self.before = fingerprint(self._files, exact=self.exact)
        assert self._changes() == []
        await until(self._tidied, "nothing is left over")

    async def _tidied(self) -> bool:
        """Return whether staging data was cleaned up, which happens right after an operation ends."""
        return self.leftovers() == []

    def _changes(self) -> list[str]:
        return differences(self.before, fingerprint(self._files, exact=self.exact))

    def _nothing_lost(self, point: str, op_id: str | None) -> None:
        committed = op_id is not None and self.store.size(archive_key_of(self.here.row.id, op_id) + META_SUFFIX)
        assert committed or self._changes() == [], f"{point}: what is not archived is in its home, whole"

    def _stored(self) -> list[str]:
        """Return everything of the workspace in the store, including incomplete uploads."""
        return sorted(self.store.paths(f"{self.here.row.id}/"))

    def _whole(self, ops: Sequence[str]) -> list[str]:
        keys = [archive_key_of(self.here.row.id, op) for op in ops]
        return sorted([*keys, *(key + META_SUFFIX for key in keys)])
