"""From the last release to this one: its database with real data, and its processes beside ours while we restart them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from codehub.adapters.postgres import users, workspaces
from codehub.adapters.postgres.migrate import latest, migrate
from codehub.adapters.postgres.pool import Database
from codehub.domain.gc import archive_key_of
from codehub.domain.model import Operation, Phase, Workspace
from codehub.domain.wording import summarize
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey
from codehub.ports.instances import InstanceSpec
from testing.codehub.coordinators import PROFILE, MemoryParts, leading, row_of, until
from testing.codehub.schema import DESCRIBED, described_schema

ROOT = Path(__file__).parents[4]

# The newest migration of CodeHub 0.1.0.
RELEASED = 2
OWNER = "01980000-0000-7000-8000-00000000aaaa"
NOW = datetime.now(UTC)

# As 0.1.0 sends them: without a column that came later.
INSERT = """
    INSERT INTO workspaces (id, owner_user_id, name, description, memo, image_ref, instance_backend, storage_backend,
        home_store_key, desired_state, last_access_at, phase_changed_at, created_at, updated_at)
    VALUES (%(id)s, %(owner)s, %(name)s, '', '', 'code-server', 'process', 'local-dir', %(key)s, %(desired)s,
        %(now)s, %(now)s, %(now)s, %(now)s)
"""
COMMIT = """
    UPDATE workspaces SET conditions = %(conditions)s, observed_at = %(now)s, phase = %(phase)s, operation = 'NONE',
        op_started_at = NULL, progress = NULL, archive_op_id = %(op)s, archive_key = %(archive)s, home_ctx = %(home)s,
        error_reason = %(error)s, error_count = 0, retry_at = NULL, deleted_at = %(deleted)s, updated_at = %(now)s
    WHERE id = %(id)s AND operation = 'NONE'
    RETURNING *
"""
ASK = "UPDATE workspaces SET desired_state = %s, error_reason = NULL, error_count = 0, retry_at = NULL WHERE id = %s"


def wid(number: int) -> str:
    return f"01980000-0000-7000-8000-{number:012d}"


def key(number: int) -> HomeKey:
    return HomeKey(wid(number), f"users/{OWNER}/workspaces/{wid(number)}/home")


def add(old: psycopg.Connection[Any], number: int, desired: str, **committed: object) -> None:
    values = {
        "id": wid(number),
        "owner": OWNER,
        "name": f"w{number}",
        "key": key(number).store_key,
        "desired": desired,
    }
    old.execute(INSERT, {**values, "now": NOW})
    if committed:
        empty = dict.fromkeys(("op", "archive", "home", "error", "deleted"))
        old.execute(COMMIT, {**values, "now": NOW, "conditions": Jsonb({}), **empty, **committed})


async def data_of_the_last_release(url: str, parts: MemoryParts) -> None:
    """Its schema, and one workspace in each state with the files that belong to it."""
    await migrate(url, target=RELEASED)
    for number in (1, 2):
        ctx = await parts.homes.provision(key(number), f"inc-{number}", no_fence)
        parts.homes.volumes[wid(number)].files["notes"] = b"kept"
    spec = InstanceSpec(wid(1), "code-server", PROFILE, parts.homes.mount(key(1)))
    await parts.instances.start(spec, ignore_progress, no_fence)
    ctx = await parts.homes.provision(key(3), "inc-3", no_fence)
    parts.homes.volumes[wid(3)].files["notes"] = b"archived"
    receipt = await parts.homes.archive(key(3), ctx, "op-3", ignore_progress, no_fence)
    await parts.homes.deprovision(key(3), ctx, no_fence)
    with psycopg.connect(url, autocommit=True) as old:
        old.execute(
            "INSERT INTO users (id, username, password_hash, is_admin) VALUES (%s, 'ada', 'hash', true)", [OWNER]
        )
        old.execute(
            "INSERT INTO sessions (id, user_id, secret_hash, expires_at) VALUES ('s', %s, 'x', now() + interval '1 day')",
            [OWNER],
        )
        old.execute("INSERT INTO api_tokens (id, user_id, name, secret_hash) VALUES ('t', %s, 'ci', 'y')", [OWNER])
        home = {"restore_marker": None}
        add(old, 1, "RUNNING", phase="RUNNING", home=Jsonb({"incarnation": "inc-1", **home}))
        add(old, 2, "STANDBY", phase="STANDBY", home=Jsonb({"incarnation": "inc-2", **home}))
        add(old, 3, "ARCHIVED", phase="ARCHIVED", op="op-3", archive=receipt.archive_key)
        add(old, 4, "RUNNING", phase="ERROR", error="Timeout")
        add(old, 5, "DELETED", phase="DELETED", deleted=NOW)
        add(old, 6, "RUNNING")
        old.execute(
            "INSERT INTO workspace_archives (workspace_id, archive_key, op_id, committed_at, bytes, sha256)"
            " VALUES (%s, %s, 'op-3', now(), %s, %s)",
            [wid(3), receipt.archive_key, receipt.bytes, receipt.sha256],
        )
        old.execute(
            "INSERT INTO workspace_events (workspace_id, kind, message, actor) VALUES (%s, 'created', 'created', 'ada')",
            [wid(1)],
        )


async def reaches(database: Database, number: int, what: str, holds: Callable[[Workspace], bool]) -> Workspace:
    async def there() -> bool:
        return holds(await row_of(database, wid(number)))

    await until(there, what)
    return await row_of(database, wid(number))


def rests_as(phase: Phase) -> Callable[[Workspace], bool]:
    return lambda row: row.phase is phase and row.operation is Operation.NONE


@pytest.mark.timeout(400)
async def test_a_database_of_the_last_release_goes_on_in_this_one(empty_database_url: str) -> None:
    parts = MemoryParts()
    await data_of_the_last_release(empty_database_url, parts)
    assert [one.version for one in await migrate(empty_database_url)][-1] == latest()
    async with Database(empty_database_url, name="test") as database:
        async with database.transaction() as tx:
            shown = await workspaces.all_of(tx, OWNER)
            assert sorted(one.workspace.name for one in shown) == ["w1", "w2", "w3", "w4", "w6"]
            assert {summarize(one.workspace).label for one in shown} >= {"Running", "Asleep", "Archived", "Error"}
            assert (await users.credentials(tx, "ada")) is not None
            over = await (await tx.execute("SELECT key_hash FROM sessions")).fetchall()
            assert [row["key_hash"] for row in over] == [None], "a session of the last release has to sign in again"
            tokens = await (await tx.execute("SELECT name, workspace_id FROM api_tokens")).fetchall()
            assert [(row["name"], row["workspace_id"]) for row in tokens] == [("ci", None)]
        was = (await parts.instances.status(wid(1))).identity
        async with leading(database, parts):
            await reaches(database, 6, "what had been asked for begins", rests_as(Phase.RUNNING))
            assert (await parts.instances.status(wid(1))).identity == was, "what ran is not restarted by an upgrade"
            async with database.transaction() as tx:
                await tx.execute(ASK.encode(), ["RUNNING", wid(3)])
                await tx.execute(ASK.encode(), ["ARCHIVED", wid(2)])
            await reaches(database, 3, "an archive of the last release is restored", rests_as(Phase.RUNNING))
            assert parts.homes.volumes[wid(3)].files == {"notes": b"archived"}
            row = await reaches(database, 2, "a home of the last release is archived", rests_as(Phase.ARCHIVED))
            assert row.archive_key == archive_key_of(row.id, row.archive_op_id or "")


@pytest.mark.timeout(400)
def test_a_migration_that_is_killed_between_any_two_statements_is_completed_by_repeating_it(
    empty_database_url: str, tmp_path: Path
) -> None:
    """Each death comes one statement later than the last: before and after each statement of a migration's transaction."""
    environment = {**os.environ, "CODEHUB_DATABASE_URL": empty_database_url, "CODEHUB_DATA_DIR": str(tmp_path)}
    killed = [sys.executable, "-m", "testing.codehub.killed_commands", "psycopg:AsyncConnection.execute"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)

    for nth in range(1, 9):
        assert run(*killed, str(nth), "migrate").returncode == -signal.SIGKILL, nth
    done = run(sys.executable, "-m", "codehub.cli.main", "migrate")
    assert done.returncode == 0, done.stderr
    assert f"applied {RELEASED - 1:04d}" not in done.stdout, "what was applied before a death stays"
    assert run(sys.executable, "-m", "codehub.cli.main", "migrate", "--check").returncode == 0
    assert described_schema(empty_database_url) == DESCRIBED.read_text(encoding="utf-8")


@pytest.mark.timeout(400)
async def test_processes_of_the_last_release_work_beside_ours_while_they_are_restarted(
    empty_database_url: str,
) -> None:
    """Its API creates and asks, its coordinator commits, on our schema, while ours leads and then does not."""
    parts = MemoryParts()
    await data_of_the_last_release(empty_database_url, parts)
    await migrate(empty_database_url)
    old = await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True)
    async with old, Database(empty_database_url, name="test") as database:
        async with leading(database, parts):
            values = {"owner": OWNER, "now": NOW, "desired": "RUNNING"}
            await old.execute(INSERT, {**values, "id": wid(7), "name": "w7", "key": key(7).store_key})
            await reaches(database, 7, "ours starts what the old API created", rests_as(Phase.RUNNING))
            await old.execute(ASK, ["STANDBY", wid(7)])
            row = await reaches(database, 7, "and stops it", rests_as(Phase.STANDBY))
        # Now the old coordinator leads: it commits a row that ours wrote, and knows none of the newer columns.
        assert row.home_ctx is not None
        home = Jsonb({"incarnation": row.home_ctx.incarnation, "restore_marker": None})
        empty = dict.fromkeys(("op", "archive", "error", "deleted"))
        conditions = Jsonb({"storage.volume_ready": {"status": "True", "reason": "Ready"}})
        changed = await old.execute(
            COMMIT,
            {**values, **empty, "id": wid(7), "phase": "STANDBY", "home": home, "conditions": conditions},
        )
        assert changed.rowcount == 1
        async with leading(database, parts):
            await old.execute(ASK, ["RUNNING", wid(7)])
            await reaches(database, 7, "ours takes over again", rests_as(Phase.RUNNING))
