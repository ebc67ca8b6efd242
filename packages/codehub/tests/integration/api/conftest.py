from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from codehub.adapters.postgres.pool import Database
from testing.codehub.api import Api, running_api


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """Long timeouts: a hundred requests at once on a machine that does ten other things must wait, not fail."""
    async with Database(database_url, timeout_s=120) as opened:
        yield opened


@pytest_asyncio.fixture
async def api(database: Database) -> AsyncIterator[Api]:
    async with running_api(database) as running:
        yield running
