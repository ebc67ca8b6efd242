"""Applies the numbered SQL files under `migrations/` in order, each once and in its own transaction.

An advisory lock makes concurrent runs safe. A database that is newer than this code is refused, because this code may not
know what its columns mean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

import psycopg

from codehub.adapters.postgres import locks
from codehub.adapters.postgres.errors import translated
from codehub.adapters.postgres.pool import connection_arguments
from codehub.domain.errors import Conflict

# The ledger of applied migrations, which exists before the first of them.
_CREATE_LEDGER = """
    CREATE TABLE IF NOT EXISTS schema_migrations (
        version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
    )
"""
_NAME = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str


def migrations() -> list[Migration]:
    """Return all migrations that ship with this version, in order."""
    found = []
    for entry in resources.files("codehub.adapters.postgres").joinpath("migrations").iterdir():
        if match := _NAME.match(entry.name):
            found.append(Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8")))
    return sorted(found, key=lambda migration: migration.version)


def latest() -> int:
    return migrations()[-1].version


async def migrate(url: str, *, target: int | None = None) -> list[Migration]:
    """Migrate the database to `target` (by default the newest) and return the migrations that were applied."""
    known = migrations()
    applied: list[Migration] = []
    arguments = connection_arguments("codehub-migrate")
    # No statement timeout: a migration may rebuild a table, and this call waits for another process's migration.
    arguments["options"] = "-c timezone=UTC -c lock_timeout=60s"
    with translated():
        async with await psycopg.AsyncConnection.connect(url, **arguments) as connection:
            await connection.execute("SELECT pg_advisory_lock(%s)", [locks.MIGRATE])
            await connection.execute(_CREATE_LEDGER)
            current = await _current(connection)
            _refuse_newer(current, known[-1].version)
            if current == 0:
                await _refuse_other_encodings(connection)
            for migration in known:
                if migration.version <= current or (target is not None and migration.version > target):
                    continue
                async with connection.transaction():
                    await connection.execute(migration.sql.encode())
                    await connection.execute(
                        "INSERT INTO schema_migrations (version, name) VALUES (%s, %s)",
                        [migration.version, migration.name],
                    )
                applied.append(migration)
    return applied


async def current_version(url: str) -> int:
    """Return the database's schema version, or 0 if it was never migrated."""
    with translated():
        async with await psycopg.AsyncConnection.connect(
            url, **connection_arguments("codehub-migrate")
        ) as connection:
            row = await (await connection.execute("SELECT to_regclass('schema_migrations') AS there")).fetchone()
            if row is None or row["there"] is None:
                return 0
            return await _current(connection)


async def _current(connection: psycopg.AsyncConnection[dict[str, object]]) -> int:
    row = await (
        await connection.execute("SELECT coalesce(max(version), 0) AS version FROM schema_migrations")
    ).fetchone()
    assert row is not None
    return int(str(row["version"]))


async def _refuse_other_encodings(connection: psycopg.AsyncConnection[dict[str, object]]) -> None:
    """Refuse a new database that cannot store every name. Changing an encoding means creating the database again."""
    row = await (await connection.execute("SELECT current_setting('server_encoding') AS encoding")).fetchone()
    encoding = str(row["encoding"]) if row is not None else ""
    if encoding != "UTF8":
        raise Conflict(
            f"the database is encoded in {encoding}, and CodeHub needs UTF8: create it again with "
            "`CREATE DATABASE codehub ENCODING 'UTF8' TEMPLATE template0`"
        )


def _refuse_newer(current: int, newest: int) -> None:
    if current > newest:
        raise Conflict(
            f"the database is at schema version {current}, this CodeHub knows only up to {newest}: "
            "run the newer CodeHub, or restore the backup made before the upgrade"
        )
