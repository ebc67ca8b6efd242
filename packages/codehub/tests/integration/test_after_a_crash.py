"""The table "After a crash" of docs/errors.md, row by row.

A real coordinator process is killed -9 at the point that leaves that row's state behind, on real PostgreSQL with real
homes, archives and instances. The next one continues from what it finds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from codehub.adapters.health import answers
from codehub.adapters.postgres.pool import Database
from codehub.adapters.process.records import Record
from codehub.domain.model import DesiredState, Operation, Phase
from testing.codehub import tiny_ide
from testing.codehub.installation import Installation, installation, until

pytestmark = [pytest.mark.xdist_group("ide"), pytest.mark.timeout(900)]


@pytest_asyncio.fixture
async def here(database: Database, redis_url: str) -> AsyncIterator[Installation]:
    async with installation(database, redis_url) as made:
        yield made


def runs(here: Installation) -> Record:
    instance = here.instance
    assert instance is not None
    assert instance.alive
    return instance


async def answers_now(here: Installation) -> bool:
    return await answers(runs(here).upstream, here.row.id, tiny_ide.by_socket())


async def killed_at(here: Installation, point: str, operation: Operation, nth: int = 1) -> None:
    """A coordinator that dies there, having left this operation under way."""
    await here.coordinator(point, nth=nth).died()
    assert (await here.now()).operation is operation


def fill(home: Path) -> dict[str, bytes]:
    """More than a few chunks of what does not compress."""
    content = {f"f{number}": os.urandom(700_000) for number in range(4)}
    for name, data in content.items():
        (home / name).write_bytes(data)
    return content


def found(home: Path) -> dict[str, bytes]:
    """The user's files. The first start also writes files of the shell and of the tools, whose names begin with a dot."""
    return {path.name: path.read_bytes() for path in home.iterdir() if path.is_file() and path.name[0] != "."}


async def test_starting_and_running(here: Installation) -> None:
    await here.create(DesiredState.RUNNING)
    await killed_at(here, "provision:staged", Operation.PROVISIONING)
    await killed_at(here, "launch", Operation.STARTING)
    assert here.instance is None, "starting, and anything else was found"
    await killed_at(here, "commit:STARTING→NONE", Operation.STARTING)
    first = runs(here)
    assert await answers_now(here), "starting, and found running and healthy"

    leader = here.coordinator()
    row = await here.reaches(Phase.RUNNING)
    assert (row.error_count, row.error_reason) == (0, None)
    assert runs(here) == first, "what runs is adopted, not started a second time"
    content = fill(here.files)

    leader.kill()
    assert await answers_now(here), "RUNNING: the user's connection works, coordinator or not"
    leader = here.coordinator()
    await here.leads(leader)
    assert (await here.reaches(Phase.RUNNING)).phase_changed_at == row.phase_changed_at
    assert runs(here) == first, "RUNNING, and found running and healthy"

    leader.kill()
    os.kill(first.pid, signal.SIGKILL)
    leader = here.coordinator(failing_for_s=0.5)

    async def restarted() -> bool:
        now = here.instance
        return now is not None and now.alive and now.identity != first.identity

    await until(restarted, "RUNNING, and found gone: it is started again")
    await here.reaches(Phase.RUNNING)
    assert found(here.files) == content
    first = runs(here)

    leader.kill()
    Path(first.socket_path).unlink()
    here.coordinator(failing_for_s=0.5)
    await until(restarted, "RUNNING, and found unhealthy: it is started again")
    await here.reaches(Phase.RUNNING)
    assert await answers_now(here)
    assert found(here.files) == content


async def test_stopping_archiving_restoring_and_deleting(here: Installation) -> None:
    await here.create(DesiredState.RUNNING)
    leader = here.coordinator()
    await here.reaches(Phase.RUNNING)
    content = fill(here.files)
    leader.kill()

    await here.ask(DesiredState.STANDBY)
    await killed_at(here, "signal", Operation.STOPPING)
    assert await answers_now(here), "stopping, and found running"
    await killed_at(here, "commit:STOPPING→NONE", Operation.STOPPING)
    stopped = here.instance
    assert stopped is not None
    assert not stopped.alive, "stopping, and found not running"
    leader = here.coordinator()
    await here.reaches(Phase.STANDBY)
    leader.kill()

    await here.ask(DesiredState.ARCHIVED)
    await killed_at(here, "archive:bytes", Operation.ARCHIVING, nth=3)
    assert here.archives() == []
    op_id = (await here.now()).archive_op_id
    await killed_at(here, "archive:after-meta", Operation.ARCHIVING)
    assert (await here.now()).archive_key is None
    await killed_at(here, "deprovision:half-removed", Operation.ARCHIVING)
    leader = here.coordinator()
    row = await here.reaches(Phase.ARCHIVED)
    assert here.archives() == [row.archive_op_id] == [op_id], "nothing doubled"
    assert not here.files.exists()
    leader.kill()

    await here.ask(DesiredState.STANDBY)
    await killed_at(here, "restore:bytes", Operation.RESTORING, nth=2)
    assert not here.files.exists(), "half a home is none"
    await killed_at(here, "restore:swapped", Operation.RESTORING)
    leader = here.coordinator()
    await here.reaches(Phase.STANDBY)
    assert found(here.files) == content, "nothing lost"
    await here.ask(DesiredState.RUNNING)
    await here.reaches(Phase.RUNNING)
    leader.kill()

    await here.change("error_reason = 'Timeout', phase = 'ERROR', desired_state = 'DELETED'")
    await killed_at(here, "remove", Operation.DELETING)
    assert here.files.exists(), "deleting, and something left"
    await killed_at(here, "commit:DELETING→NONE", Operation.DELETING)
    assert here.instance is None
    assert not here.files.exists(), "deleting, and nothing left"
    here.coordinator()
    assert (await here.reaches(Phase.DELETED)).deleted_at is not None
    assert len(here.archives()) == 2, "what was in it when it was deleted is archived too"
