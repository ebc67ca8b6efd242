"""Real services for tests: PostgreSQL and Valkey, one of each per test worker, and fresh ones that may be killed.

Each test gets a separate database, created from a migrated template: cheaper than migrating, and nothing leaks from one
test to the next.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
import redis

from codehub.adapters.embedded.account import server_account
from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.embedded.valkey import EmbeddedValkey
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database

# These tests are not about durability, and fsync takes most of their time.
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0")
_TEMPLATE = "codehub_template"
_numbers = itertools.count()


def service_dir() -> Path:
    """Return a short directory that the servers' unprivileged user can reach (pytest's own are closed to others)."""
    path = Path(tempfile.mkdtemp(prefix="ch-", dir="/tmp"))
    path.chmod(0o711)
    return path


@pytest.fixture(scope="session")
def _shared_postgres() -> Iterator[EmbeddedPostgres]:
    place = service_dir()
    server = EmbeddedPostgres(place, settings=_FAST)
    server.start()
    try:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {_TEMPLATE}")
        asyncio.run(migrate(server.url(_TEMPLATE)))
        yield server
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def _shared_valkey() -> Iterator[EmbeddedValkey]:
    place = service_dir()
    server = EmbeddedValkey(place)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def empty_database_url(_shared_postgres: EmbeddedPostgres) -> Iterator[str]:
    """A fresh, empty database."""
    yield from _made(_shared_postgres, "template0")


@pytest.fixture
def database_url(_shared_postgres: EmbeddedPostgres) -> Iterator[str]:
    """A fresh, migrated database."""
    yield from _made(_shared_postgres, _TEMPLATE)


def _made(server: EmbeddedPostgres, template: str) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.url(name)
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open pool on a fresh, migrated database."""
    async with Database(database_url) as opened:
        yield opened


@pytest.fixture
def redis_url(_shared_valkey: EmbeddedValkey) -> str:
    """An empty Valkey."""
    with redis.Redis.from_url(_shared_valkey.url) as client:
        client.flushall()
    return _shared_valkey.url


@pytest.fixture
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """A separate PostgreSQL that the test may kill and restart."""
    place = service_dir()
    server = EmbeddedPostgres(place, settings=_FAST)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def valkey_server() -> Iterator[EmbeddedValkey]:
    """A separate Valkey that the test may kill and restart."""
    place = service_dir()
    server = EmbeddedValkey(place)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)


def given_to_servers(path: Path) -> Path:
    """Give a path to the servers' user, for tests that prepare a data directory manually."""
    server_account().own(path)
    return path
