"""A user who repeats a request does not fill the database with entries of the timeline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from codehub.adapters.postgres import timeline
from codehub.adapters.postgres.pool import Database
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import workspace

OTHER = "01980000-0000-7000-8000-000000000002"
# Which entry makes the oldest go is decided by chance: once in 10**8 runs, more are left.
MOST_SURPLUS = 300


async def test_the_newest_entries_of_each_workspace_are_kept_and_recent_restarts_are_not_forgotten(
    database: Database,
) -> None:
    now = datetime.now(UTC)
    for id_ in (workspace().id, OTHER):
        await put_workspace(database, workspace(id_))

    async def note(id_: str, message: str, kind: str = "memo", at: datetime = now) -> None:
        async with database.transaction() as tx:
            await timeline.record(tx, id_, at=at, kind=kind, message=message, actor="ada")

    await note(OTHER, "of another workspace")
    await note(workspace().id, "long ago", "restarting", now - timedelta(days=1))
    await note(workspace().id, "now", "restarting")
    for number in range(1_400):
        await note(workspace().id, str(number))
    async with database.transaction() as tx:
        kept, total = await timeline.page(tx, workspace().id, 2_000, 0)
        others, _ = await timeline.page(tx, OTHER, 10, 0)
    messages = [entry.message for entry in kept]
    assert timeline.KEPT <= total <= timeline.KEPT + MOST_SURPLUS
    assert messages[: timeline.KEPT] == [str(number) for number in range(1_399, 1_399 - timeline.KEPT, -1)]
    assert messages[-1] == "now", "it counts for the limit of restarts"
    assert [entry.message for entry in others] == ["of another workspace"]


async def test_a_user_with_two_workspaces_cannot_choose_whose_entries_go(database: Database) -> None:
    """The entries whose number is a multiple of 16 made the oldest of their workspace go, and ids tell which are next."""
    now = datetime.now(UTC)
    for id_ in (workspace().id, OTHER):
        await put_workspace(database, workspace(id_))
    async with database.transaction() as tx:
        for number in range(1, 1_700):
            id_ = OTHER if number % 16 == 0 else workspace().id
            await timeline.record(tx, id_, at=now, kind="memo", message=str(number), actor="ada")
        _, total = await timeline.page(tx, workspace().id, 1, 0)
    assert total <= timeline.KEPT + MOST_SURPLUS
