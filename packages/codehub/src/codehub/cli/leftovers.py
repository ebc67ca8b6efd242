"""`codehub doctor --archives`: resources in the stores and on the runtimes that no row of the database names.

Nothing is removed: a row may be missing because a backup was restored, and the resource may be the only copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codehub.adapters.postgres.pool import Database
from codehub.cli.checks import Finding, Health
from codehub.cli.effective_settings import EffectiveSettings
from codehub.domain.errors import CodeHubError
from codehub.wiring import open_world


async def leftovers(state: EffectiveSettings) -> list[Finding]:
    """Return one finding for each archive, home, volume and container without a row."""
    state.require_database()
    async with open_world(state.settings, name="doctor") as world:
        known, recorded = await _rows(world.database)
        found: list[Finding] = []
        try:
            async for place in world.backends.archives.list_places():
                if place.workspace_id not in known:
                    found.append(_without_row("archive", place.archive_key))
                elif place.archive_key not in recorded:
                    fix = f"codehub admin recover {place.workspace_id} --archive-key {place.archive_key}"
                    message = f"{place.archive_key} of {known[place.workspace_id]} is not among its recorded archives"
                    found.append(Finding("archive", Health.WARNING, message, f"if its home is lost: {fix}"))
        except CodeHubError as error:
            found.append(Finding("archive store", Health.BAD, str(error)))
        for kind, backends in (("home", world.backends.homes), ("instance", world.backends.instances)):
            for name, backend in backends.items():
                try:
                    there: Sequence[str] = sorted(await backend.list_all())
                except CodeHubError:
                    continue  # an engine that is not available has none of our resources
                found += [_without_row(kind, f"{name}: {id_}") for id_ in there if id_ not in known]
    return found or [Finding("archives", Health.GOOD, "every archive, home, volume and container has its row")]


def _without_row(kind: str, what: str) -> Finding:
    fix = "it may be of a backup's time: keep it until you know, then remove it by hand"
    return Finding(kind, Health.WARNING, f"{what} belongs to no workspace in the database", fix)


async def _rows(database: Database) -> tuple[Mapping[str, str], frozenset[str]]:
    """Return names by id, and every recorded archive key."""
    async with database.transaction() as tx:
        rows = await (await tx.execute("SELECT id, name, archive_key FROM workspaces")).fetchall()
        kept = await (await tx.execute("SELECT archive_key FROM workspace_archives")).fetchall()
    keys = {row["archive_key"] for row in (*rows, *kept) if row["archive_key"]}
    return {row["id"]: row["name"] for row in rows}, frozenset(keys)
