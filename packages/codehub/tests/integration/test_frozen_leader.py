"""A real leader process, frozen (SIGSTOP) right before an effect for longer than its lock lasts, and then woken: what it
then does late changes nothing, neither in the database nor in the world.

Each is frozen at the worst moment there is: after its last look at the fence, before the effect itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any

import pytest
import pytest_asyncio

from codehub.adapters.health import answers
from codehub.adapters.postgres.pool import Database
from codehub.domain.model import DesiredState, Phase, Workspace
from testing.codehub import tiny_ide
from testing.codehub.installation import Installation, installation, until

pytestmark = [pytest.mark.xdist_group("ide"), pytest.mark.timeout(900)]


@pytest_asyncio.fixture
async def here(database: Database, redis_url: str) -> AsyncIterator[Installation]:
    async with installation(database, redis_url) as made:
        yield made


# What the successor observes by itself while the test runs, each with the part that writes it.
_OBSERVED = frozenset(
    {
        "conditions",
        "observed_at",
        "phase_changed_at",
        "updated_at",
        "setup",  # SetupLinks
        "disk_bytes",  # the disk runner, every 30 s
        "disk_checked_at",
    }
)


def _changed(before: Workspace, after: Workspace) -> dict[str, tuple[Any, Any]]:
    """The columns that differ, except those that the successor may write meanwhile.

    `signal-STANDBY` failed twice in 13 runs at a load of 17 to 33, for two reasons:

    * "the late write changed nothing": the phase was STANDBY and the operation STARTING. No late write did this: every
      statement of a coordinator that changes the row reads its epoch `FOR SHARE` in the same transaction and writes only if
      that is still its own (`control_term`); the next leader's increment waits for such a transaction, and one that waits
      for the increment finds the new epoch (contract/test_control_store.py holds both orders). The successor wrote it: on a
      busy machine the IDE misses its health checks, and is RUNNING again when it answers. So the test waits for that, and
      then requires the same instance, which a late signal would have ended.
    * The successor never led: the old leader was frozen between its heartbeats' UPDATE of `system_locks` and the COMMIT,
      and held the row for as long as it was frozen. That was a fault (test_frozen_transaction.py).

    The setup, which the successor writes too, was not fenced until these statements were read again (test_late_setup.py).
    """
    return {
        each.name: (getattr(before, each.name), getattr(after, each.name))
        for each in fields(Workspace)
        if each.name not in _OBSERVED and getattr(before, each.name) != getattr(after, each.name)
    }


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
    await here.reaches(Phase.RUNNING)
    assert _changed(row, await here.now()) == {}, "the late write changed nothing"
    assert here.instance == instance
    assert await answers(instance.upstream, here.row.id, tiny_ide.by_socket()), "the instance answers as before"
    assert (here.files / "notes").read_text() == "changed since", "the late removal took nothing"
    assert here.archives() == archives
    await here.ask(DesiredState.STANDBY)
    await here.reaches(Phase.STANDBY)
