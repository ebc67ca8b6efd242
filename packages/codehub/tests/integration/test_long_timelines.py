"""A user who repeats a request does not fill the database with entries of the timeline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from codehub.adapters.postgres import timeline
from codehub.adapters.postgres.pool import Database
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import workspace

OTHER = "01980000-0000-7000-8000-000000000002"


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
    for number in range(1_100):
        await note(workspace().id, str(number))
    async with database.transaction() as tx:
        kept, total = await timeline.page(tx, workspace().id, 2_000, 0)
        others, _ = await timeline.page(tx, OTHER, 10, 0)
    messages = [entry.message for entry in kept]
    assert timeline.KEPT <= total <= timeline.KEPT + 17
    assert messages[: timeline.KEPT] == [str(number) for number in range(1_099, 1_099 - timeline.KEPT, -1)]
    assert messages[-1] == "now", "it counts for the limit of restarts"
    assert [entry.message for entry in others] == ["of another workspace"]
