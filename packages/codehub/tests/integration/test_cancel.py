"""An owner cancels what is under way: an archive, a restore, a start that do not end by themselves. Real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from codehub.adapters.postgres.pool import Database
from codehub.domain.errors import Conflict
from codehub.domain.limits import RunningLimits
from codehub.domain.model import DesiredState, Operation, Phase, Workspace
from codehub.services.principal import Principal
from codehub.services.workspaces import Workspaces
from testing.codehub.coordinators import MemoryParts, leading, row_of, until
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import workspace

ID = workspace().id


def service(database: Database) -> Workspaces:
    no: Any = None  # what cancelling does not use
    return Workspaces(database, RunningLimits(10, 10), no, no, lambda: datetime.now(UTC), no, visits=no)


def owner() -> Principal:
    who = workspace().owner_user_id
    return Principal(who, "owner", is_admin=False, by_token=False, bearer_id="b", expires_at=None)


async def reaches(database: Database, what: str, holds: Callable[[Workspace], bool]) -> Workspace:
    async def there() -> bool:
        return holds(await row_of(database, ID))

    await until(there, what)
    return await row_of(database, ID)


async def rests(database: Database, phase: Phase) -> Workspace:
    return await reaches(
        database, f"it rests as {phase}", lambda row: row.phase is phase and row.operation is Operation.NONE
    )


class Stuck:
    """A backend's method that begins and never ends by itself."""

    def __init__(self, really: Callable[..., Awaitable[Any]]) -> None:
        self._really = really
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.holds = True

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        if not self.holds:
            return await self._really(*arguments, **named)
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


async def begun(stuck: Stuck) -> None:
    async with asyncio.timeout(60):
        await stuck.begun.wait()


async def ask(database: Database, desired: DesiredState) -> None:
    async with database.transaction() as tx:
        await tx.execute("UPDATE workspaces SET desired_state = %s WHERE id = %s", [desired.value, ID])


async def running(database: Database, parts: MemoryParts) -> None:
    await rests(database, Phase.RUNNING)
    parts.homes.volumes[ID].files["notes"] = b"kept"


async def test_a_cancelled_archive_leaves_the_home_as_it_was_and_is_not_begun_again(database: Database) -> None:
    parts = MemoryParts()
    stuck = parts.homes.archive = Stuck(parts.homes.archive)  # type: ignore[method-assign]
    await put_workspace(database, replace(workspace(created_at=datetime.now(UTC)), last_access_at=datetime.now(UTC)))
    async with leading(database, parts):
        await running(database, parts)
        await ask(database, DesiredState.ARCHIVED)
        await begun(stuck)
        began = datetime.now(UTC)
        seen = await service(database).cancel(owner(), ID)
        assert seen.workspace.desired_state is DesiredState.STANDBY
        row = await rests(database, Phase.STANDBY)
        assert stuck.ended.is_set(), "the work itself has ended"
        assert row.archive_key is None
        assert row.phase_changed_at >= began, "its time asleep begins again"
        assert parts.homes.volumes[ID].files == {"notes": b"kept"}
        with pytest.raises(Conflict, match="nothing is under way"):
            await service(database).cancel(owner(), ID)
        # The next archive is another operation: the request that is over does not touch it.
        stuck.holds = False
        await ask(database, DesiredState.ARCHIVED)
        row = await rests(database, Phase.ARCHIVED)
        assert row.archive_key is not None
        assert parts.archives.find(row.archive_key) == {"notes": b"kept"}


async def test_a_cancelled_restore_leaves_the_archive_and_a_cancelled_start_stops(database: Database) -> None:
    parts = MemoryParts()
    await put_workspace(database, replace(workspace(created_at=datetime.now(UTC)), last_access_at=datetime.now(UTC)))
    async with leading(database, parts):
        await running(database, parts)
        await ask(database, DesiredState.ARCHIVED)
        row = await rests(database, Phase.ARCHIVED)
        restore = parts.homes.restore = Stuck(parts.homes.restore)  # type: ignore[method-assign]
        await ask(database, DesiredState.RUNNING)
        await begun(restore)
        assert (await service(database).cancel(owner(), ID)).workspace.desired_state is DesiredState.ARCHIVED
        assert (await rests(database, Phase.ARCHIVED)).archive_key == row.archive_key
        restore.holds = False
        start = parts.instances.start = Stuck(parts.instances.start)  # type: ignore[method-assign]
        await ask(database, DesiredState.RUNNING)
        await begun(start)
        assert (await service(database).cancel(owner(), ID)).workspace.desired_state is DesiredState.STANDBY
        await rests(database, Phase.STANDBY)
        assert parts.homes.volumes[ID].files == {"notes": b"kept"}
        assert not (await parts.instances.status(ID)).running


async def test_another_desired_state_alone_preempts_nothing(database: Database) -> None:
    parts = MemoryParts()
    stuck = parts.homes.archive = Stuck(parts.homes.archive)  # type: ignore[method-assign]
    await put_workspace(database, replace(workspace(created_at=datetime.now(UTC)), last_access_at=datetime.now(UTC)))
    async with leading(database, parts):
        await running(database, parts)
        await ask(database, DesiredState.ARCHIVED)
        await begun(stuck)
        await ask(database, DesiredState.RUNNING)
        # A cancellation of an operation that is over, too.
        async with database.transaction() as tx:
            await tx.execute("UPDATE workspaces SET cancel_op_started_at = op_started_at - interval '1 hour'")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await stuck.ended.wait()
        assert (await row_of(database, ID)).operation is Operation.ARCHIVING
