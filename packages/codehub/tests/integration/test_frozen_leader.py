"""A real leader process, frozen (SIGSTOP) right before an effect for longer than its lock lasts, and then woken: what it
then does late changes nothing, neither in the database nor in the world.

Each is frozen at the worst moment there is: after its last look at the fence, before the effect itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from codehub.adapters.health import answers
from codehub.adapters.postgres.pool import Database
from codehub.domain.model import Conditions, DesiredState, Phase, Workspace
from testing.codehub import tiny_ide
from testing.codehub.installation import Installation, installation, until

pytestmark = [pytest.mark.xdist_group("ide"), pytest.mark.timeout(900)]


@pytest_asyncio.fixture
async def here(database: Database, redis_url: str) -> AsyncIterator[Installation]:
    async with installation(database, redis_url) as made:
        yield made


# What the successor observes by itself while the test runs, each with the part that writes it.
_OBSERVED: dict[str, Any] = {
    "conditions": Conditions(),
    "observed_at": None,
    "phase_changed_at": None,
    "updated_at": None,
    "setup": None,  # SetupLinks
    "disk_bytes": None,  # the disk runner, every 30 s
    "disk_checked_at": None,
}


def _decided(row: Workspace) -> Workspace:
    """The row without what the successor may observe meanwhile.

    `signal-STANDBY` once failed under load with "the late write changed nothing". It could not be reproduced. It compared
    columns that the successor writes: on a loaded machine the instance misses its health checks for a moment, and the
    successor records STANDBY and RUNNING again, with the same instance; and the disk runner measures the home. The fence
    is not the likely cause: every commit checks the epoch in the statement that writes, so that one of the old epoch
    changes no column at all (testing/codehub/contracts/control_store.py).
    """
    return replace(row, **_OBSERVED)


@pytest.mark.parametrize(
    ("point", "desired", "answer"),
    [
        # A late write: of what an archive left behind.
        ("commit:ARCHIVING→NONE", DesiredState.ARCHIVED, "Deposed: epoch {epoch} is over: the database is at {next}"),
        # Late destructive calls: the volume's removal, the instance's end, the removal of what it left.
        ("deprovision:fenced", DesiredState.ARCHIVED, None),
        ("signal", DesiredState.STANDBY, ""),
        pytest.param(
            "remove",
            DesiredState.ARCHIVED,
            "FenceLost: the instance of {id} is another start than the one",
            marks=pytest.mark.soak,
        ),
    ],
)
async def test_what_a_frozen_leader_does_late_changes_nothing(
    here: Installation, point: str, desired: DesiredState, answer: str | None
) -> None:
    frozen = here.coordinator(point, "freeze")
    epoch = await here.leads(frozen)
    await here.create(DesiredState.RUNNING)
    await here.reaches(Phase.RUNNING)
    (here.files / "notes").write_text("kept")
    await here.ask(desired)
    await frozen.froze()

    successor = here.coordinator()
    assert await here.leads(successor) == epoch + 1
    await here.reaches(Phase(desired.value))
    await here.ask(DesiredState.RUNNING)
    await here.reaches(Phase.RUNNING)
    assert (here.files / "notes").read_text() == "kept"
    (here.files / "notes").write_text("changed since")
    row, instance, archives = await here.now(), here.instance, here.archives()
    assert instance is not None

    frozen.thaw()
    await here.stands()

    async def answered() -> bool:
        return bool(frozen.answers())

    if answer is not None:
        await until(answered, "the late call is answered")
        assert frozen.answers()[0].startswith(answer.format(epoch=epoch, next=epoch + 1, id=here.row.id))
    assert (await here.leadership()).epoch == epoch + 1
    assert _decided(await here.now()) == _decided(row), "the late write changed nothing"
    assert here.instance == instance
    assert await answers(instance.upstream, here.row.id, tiny_ide.by_socket()), "the instance answers as before"
    assert (here.files / "notes").read_text() == "changed since", "the late removal took nothing"
    assert here.archives() == archives
    await here.ask(DesiredState.STANDBY)
    await here.reaches(Phase.STANDBY)
