"""Coordinators on real PostgreSQL: one leads, what is killed is replaced, and what was under way is carried on.

What a frozen one does late is in `test_frozen_leader.py`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.postgres import system
from codehub.adapters.postgres.control_leader import IDLE_TIMEOUT_S, PING_EVERY_S, TERM_S, PostgresElection
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database
from codehub.adapters.system_clock import SystemClock
from codehub.domain.errors import BackendDown, Deposed
from codehub.domain.leadership import Leadership
from codehub.domain.model import DesiredState, HomeCtx, Operation, Phase, Workspace
from codehub.ports.fence import no_fence
from codehub.ports.homes import HomeKey
from codehub.ports.instances import InstanceSpec
from testing.codehub.coordinators import LOCK_ID, PROFILE, TIMEOUT_S, MemoryParts, leading, row_of, settings, until
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import workspace

ID = workspace().id
HOME = HomeKey(ID, workspace().home_store_key)


def fresh(**changes: Any) -> Workspace:
    now = datetime.now(UTC)
    return replace(workspace(created_at=now), last_access_at=now, **changes)


async def reaches(database: Database, phase: Phase) -> Workspace:
    async def there() -> bool:
        row = await row_of(database, ID)
        return row.phase is phase and row.operation is Operation.NONE

    await until(there, f"it becomes {phase}")
    return await row_of(database, ID)


async def ask(database: Database, desired: DesiredState) -> None:
    async with database.transaction() as tx:
        await tx.execute("UPDATE workspaces SET desired_state = %s WHERE id = %s", [desired.value, ID])


async def leadership(database: Database) -> Leadership:
    async with database.transaction() as tx:
        return await system.leadership(tx, LOCK_ID)


@contextmanager
def process(url: str, node_id: str) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(
        [sys.executable, "-m", "testing.codehub.coordinators", url, node_id],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait(TIMEOUT_S)


async def leads(database: Database, node_id: str) -> None:
    async def there() -> bool:
        found = await leadership(database)
        return found.held and found.holder_id == node_id and bool(found.components)

    await until(there, f"{node_id} leads")


async def test_a_workspace_goes_all_the_way_up_down_and_away(database: Database) -> None:
    parts = MemoryParts()
    await put_workspace(database, fresh())
    async with leading(database, parts):
        await reaches(database, Phase.RUNNING)
        parts.homes.volumes[ID].files["notes"] = b"kept"
        await ask(database, DesiredState.ARCHIVED)
        row = await reaches(database, Phase.ARCHIVED)
        assert parts.homes.volumes == {}
        assert row.archive_key is not None
        assert parts.archives.find(row.archive_key) == {"notes": b"kept"}
        await ask(database, DesiredState.RUNNING)
        await reaches(database, Phase.RUNNING)
        assert parts.homes.volumes[ID].files == {"notes": b"kept"}
        await ask(database, DesiredState.DELETED)
        await reaches(database, Phase.DELETED)
        assert parts.instances.there == {}
        assert parts.homes.volumes == {}


_HOME_CTX = HomeCtx("inc-1")


async def _home(parts: MemoryParts) -> None:
    await parts.homes.provision(HOME, "inc-1", no_fence)
    parts.homes.volumes[ID].files["notes"] = b"kept"


async def _runs(parts: MemoryParts) -> None:
    await _home(parts)
    spec = InstanceSpec(ID, "code-server", PROFILE, parts.homes.mount(HOME))
    await parts.instances.start(spec, lambda _: None, no_fence)


async def _ended(parts: MemoryParts) -> None:
    await _runs(parts)
    parts.instances.end(ID, "ExitCode:137")


async def _nothing(parts: MemoryParts) -> None:
    pass


async def _half_archived(parts: MemoryParts) -> None:
    await _home(parts)
    await parts.homes.archive(HOME, _HOME_CTX, "op-1", lambda _: None, no_fence)


@pytest.mark.parametrize(
    ("was", "found", "becomes"),
    [
        ({"operation": Operation.STARTING, "phase": Phase.STANDBY, "home_ctx": _HOME_CTX}, _runs, Phase.RUNNING),
        ({"operation": Operation.STARTING, "phase": Phase.STANDBY, "home_ctx": _HOME_CTX}, _ended, Phase.RUNNING),
        (
            {
                "operation": Operation.STOPPING,
                "phase": Phase.RUNNING,
                "home_ctx": _HOME_CTX,
                "desired_state": DesiredState.STANDBY,
            },
            _ended,
            Phase.STANDBY,
        ),
        (
            {
                "operation": Operation.STOPPING,
                "phase": Phase.RUNNING,
                "home_ctx": _HOME_CTX,
                "desired_state": DesiredState.STANDBY,
            },
            _runs,
            Phase.STANDBY,
        ),
        (
            {
                "operation": Operation.DELETING,
                "phase": Phase.DELETING,
                "archive_op_id": "op-1",
                "desired_state": DesiredState.DELETED,
            },
            _nothing,
            Phase.DELETED,
        ),
        (
            {
                "operation": Operation.DELETING,
                "phase": Phase.DELETING,
                "archive_op_id": "op-1",
                "home_ctx": _HOME_CTX,
                "desired_state": DesiredState.DELETED,
            },
            _runs,
            Phase.DELETED,
        ),
        ({"phase": Phase.RUNNING, "home_ctx": _HOME_CTX}, _runs, Phase.RUNNING),
        ({"phase": Phase.RUNNING, "home_ctx": _HOME_CTX}, _ended, Phase.RUNNING),
        ({"phase": Phase.RUNNING, "home_ctx": _HOME_CTX}, _home, Phase.RUNNING),
        (
            {
                "operation": Operation.ARCHIVING,
                "phase": Phase.STANDBY,
                "archive_op_id": "op-1",
                "home_ctx": _HOME_CTX,
                "desired_state": DesiredState.ARCHIVED,
            },
            _half_archived,
            Phase.ARCHIVED,
        ),
    ],
)
async def test_after_a_crash_everything_is_carried_on_from_what_is_found(
    database: Database, was: dict[str, Any], found: Any, becomes: Phase
) -> None:
    parts = MemoryParts()
    await found(parts)
    before = parts.instances.there.get(ID)
    started = datetime.now(UTC) if was.get("operation") else None
    await put_workspace(database, fresh(**was, op_started_at=started))
    async with leading(database, parts):

        async def settled() -> bool:
            row = await row_of(database, ID)
            return row.phase is becomes and row.operation is Operation.NONE and row.observed_at is not None

        await until(settled, f"it becomes {becomes}")

        async def alive() -> bool:
            return becomes is not Phase.RUNNING or parts.instances.there[ID].running

        await until(alive, "it runs")
    row = await row_of(database, ID)
    assert row.error_reason is None
    if was == {"phase": Phase.RUNNING, "home_ctx": _HOME_CTX} and found is _runs:
        assert parts.instances.there[ID] == before, "what runs is left alone"
    if found is not _nothing:
        kept = [stored.files for stored in parts.archives.places.values() if stored.meta]
        homes = [volume.files for volume in parts.homes.volumes.values()]
        assert [*kept, *homes] == [{"notes": b"kept"}], "nothing lost, nothing doubled"


async def test_a_killed_leader_is_replaced_at_once(database_url: str, database: Database) -> None:
    with process(database_url, "first") as first:
        await leads(database, "first")
        with process(database_url, "second"):
            epoch = (await leadership(database)).epoch
            first.kill()
            await leads(database, "second")
            assert (await leadership(database)).epoch == epoch + 1


async def test_a_term_ends_when_its_connection_is_cut(database_url: str, database: Database) -> None:
    election = PostgresElection(database_url, lock_id=LOCK_ID, retry_interval_s=1.0, clock=SystemClock())
    async with election.campaign("one") as lease:
        lease.fence()
        async with database.transaction() as tx:
            await tx.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'codehub-leader' AND datname = current_database()"
            )
        with pytest.raises(Deposed):
            async with asyncio.timeout(TIMEOUT_S):
                await lease.hold()
        with pytest.raises(Deposed):
            lease.fence()
    async with election.campaign("two") as lease:
        lease.fence()
        assert (await leadership(database)).holder_id == "two"


async def test_a_lock_that_nobody_pings_is_freed_by_the_server_after_the_term_is_over(database_url: str) -> None:
    election = PostgresElection(database_url, lock_id=LOCK_ID, retry_interval_s=1.0, clock=SystemClock())
    async with election.campaign("one") as lease:
        row = await (await lease.connection.execute("SHOW idle_session_timeout")).fetchone()
        assert row == {"idle_session_timeout": f"{IDLE_TIMEOUT_S:.0f}s"}
        assert lease.deadline - SystemClock().monotonic() <= TERM_S
    assert PING_EVERY_S < TERM_S < IDLE_TIMEOUT_S, "a leader stops before the server frees its lock"


async def test_a_standby_waits_inside_the_lock_and_is_elected_when_it_is_freed(
    database_url: str, database: Database
) -> None:
    election = PostgresElection(database_url, lock_id=LOCK_ID, retry_interval_s=0.2, clock=SystemClock())

    async def stand() -> int:
        async with election.campaign("standby") as lease:
            return lease.epoch

    async with election.campaign("leader") as lease:
        standing = asyncio.create_task(stand())

        async def waiting() -> bool:
            async with database.transaction() as tx:
                rows = await (await tx.execute("SELECT 1 FROM pg_locks WHERE NOT granted")).fetchall()
            return bool(rows)

        await until(waiting, "the standby waits")
        assert not standing.done()
        epoch = lease.epoch
    assert await asyncio.wait_for(standing, TIMEOUT_S) == epoch + 1


async def test_a_restarted_database_is_led_again(postgres_server: EmbeddedPostgres) -> None:
    await migrate(postgres_server.url())
    parts = MemoryParts()
    async with Database(postgres_server.url()) as database:
        await put_workspace(database, fresh())
        async with leading(database, parts):
            await reaches(database, Phase.RUNNING)
            await asyncio.to_thread(postgres_server.stop)
            await asyncio.to_thread(postgres_server.start)

            async def answered() -> bool:
                try:
                    await ask(database, DesiredState.STANDBY)
                except (BackendDown, psycopg.Error):
                    return False
                return True

            await until(answered, "the database answers")

            async def asleep() -> bool:
                try:
                    row = await row_of(database, ID)
                except (BackendDown, psycopg.Error):
                    return False
                return row.phase is Phase.STANDBY and row.operation is Operation.NONE

            await until(asleep, "it is put to sleep")


async def test_the_ttl_puts_to_sleep_what_nobody_uses_and_nothing_while_activity_cannot_be_seen(
    database: Database,
) -> None:
    parts = MemoryParts()
    parts.activity.away = True
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    await put_workspace(database, fresh(phase=Phase.RUNNING, home_ctx=_HOME_CTX))
    await _runs(parts)
    async with database.transaction() as tx:
        await tx.execute("UPDATE workspaces SET last_access_at = %s, phase_changed_at = %s", [long_ago, long_ago])
        await tx.execute(
            "INSERT INTO system_facts VALUES ('activity_coverage', jsonb_build_object('until', now(), 'gaps', '[]'::jsonb))"
        )
    chosen = settings("node", interval_s=0.1, standby_s=60.0, archive_s=3600.0, flush_interval_s=1.0)
    async with leading(database, parts, chosen):

        async def failed_ticks() -> bool:
            reported = (await leadership(database)).components.get("ttl_runner", {})
            return reported.get("last_error") is not None

        await until(failed_ticks, "the TTL Runner says that it cannot see")
        assert (await row_of(database, ID)).desired_state is DesiredState.RUNNING
        parts.activity.away = False
        await reaches(database, Phase.STANDBY)
