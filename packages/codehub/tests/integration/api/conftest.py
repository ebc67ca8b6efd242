from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from codehub.adapters.postgres.pool import Database
from testing.api import Api, running_api


@pytest_asyncio.fixture
async def api(database: Database) -> AsyncIterator[Api]:
    async with running_api(database) as running:
        yield running
