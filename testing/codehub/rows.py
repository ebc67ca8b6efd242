"""Puts complete rows of `workspaces` into a real database, which no single part of CodeHub does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from psycopg.types.json import Jsonb

from codehub.adapters.postgres.pool import Database
from codehub.adapters.postgres.rows import blocked_column, conditions_column, home_ctx_column, progress_column
from codehub.domain.applied_template import encode
from codehub.domain.dev_image import encode_dev_image
from codehub.domain.model import Workspace

_NOT_COLUMNS = ("of_newer_version", "busy")
_COLUMNS = (
    *(field.name for field in fields(Workspace) if field.name not in _NOT_COLUMNS),
    *("busy_reason", "busy_since", "busy_at"),
)


async def put_workspace(database: Database, row: Workspace) -> None:
    """Insert a row or overwrite every column. Creates its owner too."""
    await put_workspaces(database, [row])


async def put_workspaces(database: Database, rows: Sequence[Workspace]) -> None:
    """Put many rows in one transaction."""
    owners = sorted({row.owner_user_id for row in rows})
    names, holes = ", ".join(_COLUMNS), ", ".join(f"%({name})s" for name in _COLUMNS)
    updates = ", ".join(f"{name} = EXCLUDED.{name}" for name in _COLUMNS)
    async with database.transaction() as tx, tx.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO users (id, username, password_hash) VALUES (%s, %s, 'x') ON CONFLICT DO NOTHING",
            [(owner, f"u{owner}"[:60]) for owner in owners],
        )
        await cursor.executemany(
            f"INSERT INTO workspaces ({names}) VALUES ({holes}) ON CONFLICT (id) DO UPDATE SET {updates}".encode(),
            [_values(row) for row in rows],
        )


def _values(row: Workspace) -> dict[str, object]:
    values: dict[str, object] = {name: getattr(row, name, None) for name in _COLUMNS}
    values["conditions"] = Jsonb(conditions_column(row.conditions))
    values["home_ctx"] = Jsonb(home_ctx_column(row.home_ctx)) if row.home_ctx else None
    values["progress"] = Jsonb(progress_column(row.progress)) if row.progress else None
    values["blocked"] = Jsonb(blocked_column(row.blocked)) if row.blocked else None
    values["template"] = Jsonb(encode(row.template)) if row.template else None
    values["template_next"] = Jsonb(encode(row.template_next)) if row.template_next else None
    for name in ("dev_image", "dev_image_next"):
        image = getattr(row, name)
        values[name] = Jsonb(encode_dev_image(image)) if image else None
    busy = row.busy
    values["busy_reason"] = busy.reason if busy else None
    values["busy_since"] = busy.since if busy else None
    values["busy_at"] = busy.at if busy else None
    for name in ("phase", "operation", "desired_state", "error_reason"):
        values[name] = None if values[name] is None else str(values[name])
    return values
