"""A cancellation that comes at the same moment as the awaited connection is never lost."""

from __future__ import annotations

import asyncio

from codehub.adapters.postgres.pool import Database


async def test_a_task_cancelled_as_it_is_given_a_connection_ends(database_url: str) -> None:
    async with Database(database_url, max_connections=1) as database:
        for turns in range(40):
            held, free = asyncio.Event(), asyncio.Event()

            async def hold(held: asyncio.Event = held, free: asyncio.Event = free) -> None:
                async with database.transaction():
                    held.set()
                    await free.wait()

            async def want() -> None:
                async with database.transaction():
                    await asyncio.Event().wait()

            holder = asyncio.create_task(hold())
            await held.wait()
            waiter = asyncio.create_task(want())
            await asyncio.sleep(0)
            free.set()
            # A few turns of the loop more each time, until the connection changes hands in this very one.
            while not holder.done() and turns:
                await asyncio.sleep(0)
                turns -= 1
            waiter.cancel()
            await asyncio.wait([waiter], timeout=60)
            assert waiter.cancelled(), "the cancellation was lost"
            await holder
