"""How many rows a query reads beside thousands of rows of others: counted by PostgreSQL, not measured in time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from psycopg.types.json import Jsonb

from codehub.adapters.postgres import control_gc, users
from codehub.adapters.postgres.pool import Database
from codehub.domain.audit import AuditKind

ROWS = 3_000
OWNER = "INSERT INTO users (id, username, password_hash) VALUES ('u', 'u', 'x')"
# Every other workspace is a copy of the one before it.
WORKSPACES = """
    INSERT INTO workspaces (id, owner_user_id, name, image_ref, instance_backend, storage_backend, home_store_key,
        desired_state, archive_key, copy_of)
    SELECT id, 'u', 'n' || n, 'x', 'process', 'local-dir', 'k', 'ARCHIVED', id || '/op/home.tar.zst',
        CASE WHEN n %% 2 = 0 THEN lpad(to_hex(n - 1), 8, '0') || '-0000-7000-8000-000000000000' END
    FROM (
        SELECT n, lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000' AS id FROM generate_series(1, %s) AS n
    ) AS made
"""
ARCHIVES = """
    INSERT INTO workspace_archives (workspace_id, archive_key, op_id, committed_at, bytes, sha256)
    SELECT id, archive_key, 'op', now(), 1, repeat('a', 64) FROM workspaces
"""
EVENTS = """
    INSERT INTO audit_events (at, event, actor, address, target, detail)
    SELECT now(), 'port.shared', 'u', '192.0.2.1', '', %s FROM generate_series(1, %s)
"""


def rows_read(plan: Mapping[str, Any]) -> int:
    """Return how many rows the nodes of a plan returned or dropped, in all of their loops."""
    dropped = sum(plan.get(name, 0) for name in ("Rows Removed by Filter", "Rows Removed by Join Filter"))
    own = (plan["Actual Rows"] + dropped) * plan["Actual Loops"]
    return int(own) + sum(rows_read(child) for child in plan.get("Plans", ()))


class Explained:
    """A connection that explains what it executes, and counts the rows."""

    def __init__(self, tx: Any) -> None:
        self._tx = tx
        self.rows = 0

    async def execute(self, statement: str, values: Any) -> Any:
        explained = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}"
        row = await (await self._tx.execute(explained.encode(), values)).fetchone()
        self.rows += rows_read(row["QUERY PLAN"][0]["Plan"])
        return await self._tx.execute(statement.encode(), values)


async def test_the_claims_of_all_workspaces_are_read_in_linear_work(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute(OWNER)
        await tx.execute(WORKSPACES.encode(), [ROWS])
        await tx.execute(ARCHIVES.encode())
        await tx.execute("ANALYZE")
        ids = [row["id"] for row in await (await tx.execute("SELECT id FROM workspaces")).fetchall()]
        explained = Explained(tx)
        await explained.execute(control_gc._CLAIMS, {"keep": 2, "ids": ids})
    assert explained.rows < 50 * ROWS


async def test_a_sign_in_does_not_read_the_users_other_events(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute(EVENTS.encode(), [Jsonb({}), ROWS])
        await tx.execute("ANALYZE")
        row = await (await tx.execute("SELECT now() AS now")).fetchone()
        assert row is not None
        explained = Explained(tx)
        familiar = await users.signed_in_from(explained, "u", "192.0.2.9", row["now"] - timedelta(hours=1))  # type: ignore[arg-type]
    assert not familiar
    assert str(AuditKind.SIGN_IN) == "sign_in.succeeded", "the index names it"
    assert explained.rows < 10
