"""Facts that outlive processes (`system_facts`), such as the installation's id."""

from __future__ import annotations

from codehub.adapters.postgres.pool import Database


async def installation_id(database: Database, fresh: str) -> str:
    """Return this installation's id: `fresh` on the first call, the same value ever after."""
    async with database.transaction() as tx:
        await tx.execute(
            "INSERT INTO system_facts (name, value) VALUES ('installation_id', to_jsonb(%s::text)) ON CONFLICT DO NOTHING",
            [fresh],
        )
        row = await (
            await tx.execute("SELECT value #>> '{}' AS id FROM system_facts WHERE name = 'installation_id'")
        ).fetchone()
    assert row is not None
    return str(row["id"])
