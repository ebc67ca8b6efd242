"""Migrations from zero, again, at once, and against a newer database."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from codehub.adapters.postgres.migrate import current_version, latest, migrate, migrations
from codehub.adapters.postgres.pool import Database
from codehub.domain.errors import BackendDown, Conflict
from testing.codehub.schema import DESCRIBED, described_schema


def test_migrations_have_numbers_of_their_own_and_are_in_order() -> None:
    numbers = [migration.version for migration in migrations()]
    assert numbers[0] == 1
    assert numbers == sorted(set(numbers))


async def test_a_database_is_migrated_from_zero_and_only_once(empty_database_url: str) -> None:
    assert await current_version(empty_database_url) == 0
    assert [migration.version for migration in await migrate(empty_database_url)] == [
        each.version for each in migrations()
    ]
    assert await migrate(empty_database_url) == []
    assert await current_version(empty_database_url) == latest()


async def test_each_earlier_version_is_brought_up_to_date(empty_database_url: str) -> None:
    for version in [each.version for each in migrations()]:
        applied = await migrate(empty_database_url, target=version)
        assert [migration.version for migration in applied] == [version]


async def test_migrating_from_many_processes_at_once_applies_each_migration_once(empty_database_url: str) -> None:
    rounds = await asyncio.gather(*(migrate(empty_database_url) for _ in range(8)))
    applied = [migration.version for done in rounds for migration in done]
    assert sorted(applied) == [each.version for each in migrations()]


async def test_a_database_of_a_newer_codehub_is_refused(empty_database_url: str) -> None:
    await migrate(empty_database_url)
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("INSERT INTO schema_migrations (version, name) VALUES (9999, 'from the future')")
    with pytest.raises(Conflict, match="9999"):
        await migrate(empty_database_url)


async def test_a_new_database_in_another_encoding_is_refused_and_an_old_one_works(empty_database_url: str) -> None:
    base, _, name = empty_database_url.partition("?")
    url = base.rpartition("/")[0] + "/ascii" + (f"?{name}" if name else "")
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        try:
            with pytest.raises(Conflict, match=r"encoded in SQL_ASCII, and CodeHub needs UTF8: .*ENCODING 'UTF8'"):
                await migrate(url)
            async with Database(url) as database, database.statement() as statement:
                row = await (await statement.execute("SELECT %s AS name", ["grün"])).fetchone()
            assert row == {"name": "grün"}
        finally:
            connection.execute("DROP DATABASE ascii WITH (FORCE)")


async def test_a_database_that_is_not_there_is_said_to_be_away() -> None:
    with pytest.raises(BackendDown):
        await migrate("postgresql://nobody:x@127.0.0.1:9/none?connect_timeout=2")


async def test_the_migrations_make_the_described_schema(database_url: str) -> None:
    assert described_schema(database_url) == DESCRIBED.read_text()
