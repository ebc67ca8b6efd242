"""Notifications become hints in Redis; a Redis that is killed or wiped costs hints and gaps time, and nothing else."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any, cast

import redis

from codehub.adapters.embedded.valkey import EmbeddedValkey
from codehub.adapters.postgres import user_setup
from codehub.adapters.postgres.control_notifications import PostgresNotifications
from codehub.adapters.postgres.pool import Database
from codehub.adapters.redis.activity import RedisActivity
from codehub.adapters.redis.bus import RedisBus
from codehub.adapters.redis.client import connect
from codehub.domain.errors import BackendDown
from codehub.domain.model import DesiredState, Phase
from codehub.ports.notifications import Notice, NoticeKind
from testing.codehub.coordinators import TIMEOUT_S, MemoryParts, leading, row_of, until
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import workspace

ID, OWNER = workspace().id, workspace().owner_user_id


async def test_what_changes_is_published_to_its_owner_and_wakes_everybody(database: Database, redis_url: str) -> None:
    client = connect(redis_url)
    parts = MemoryParts()
    parts.bus = cast(Any, RedisBus(client))
    wanted = {f"codehub:sse:{OWNER}", "codehub:wake:wc", "codehub:wake:ob"}
    heard: set[str] = set()
    try:
        async with leading(database, parts), asyncio.timeout(TIMEOUT_S):
            stream = cast(Any, RedisBus(client).subscribe("codehub:*"))
            async with aclosing(stream):
                changes = asyncio.create_task(_change_for_ever(database))
                try:
                    async for channel, payload in stream:
                        assert json.loads(payload) == {"id": ID}
                        heard.add(channel)
                        if heard >= wanted:
                            break
                finally:
                    changes.cancel()
                    await asyncio.wait([changes])
    finally:
        await client.aclose()
    assert heard == wanted


async def test_what_a_user_changes_for_their_workspaces_is_notified(database: Database) -> None:
    notifications = PostgresNotifications(database.url)
    async with asyncio.timeout(TIMEOUT_S), aclosing(cast(Any, notifications.listen())) as notices:
        assert await anext(notices) is None  # it listens
        async with database.transaction() as tx:
            await user_setup.changed(tx, OWNER)
        while (notice := await anext(notices)) is None:
            pass
    assert notice == Notice(NoticeKind.USER_SETUP, "", OWNER)


async def _change_for_ever(database: Database) -> None:
    """Hints sent before anybody listened are lost: so there are always more."""
    await put_workspace(database, workspace(desired=DesiredState.STANDBY))
    for desired in ["RUNNING", "STANDBY"] * 1_000:
        async with database.transaction() as tx:
            await tx.execute("UPDATE workspaces SET desired_state = %s WHERE id = %s", [desired, ID])
        await asyncio.sleep(0.2)


async def test_without_redis_workspaces_still_start(database: Database, valkey_server: EmbeddedValkey) -> None:
    client = connect(valkey_server.url)
    parts = MemoryParts()
    parts.bus = cast(Any, RedisBus(client))
    parts.activity = cast(Any, RedisActivity(client))
    try:
        async with leading(database, parts):
            await asyncio.to_thread(valkey_server.stop)
            await put_workspace(database, workspace())

            async def runs() -> bool:
                return (await row_of(database, ID)).phase is Phase.RUNNING

            await until(runs, "it runs without Redis")
    finally:
        await client.aclose()


async def test_activity_that_redis_lost_is_known_to_be_lost(valkey_server: EmbeddedValkey) -> None:
    client = connect(valkey_server.url)
    activity = RedisActivity(client)
    try:
        assert not await activity.unbroken(), "nobody asked before"
        await activity.flush({ID: 1.0})
        assert await activity.unbroken()
        with redis.Redis.from_url(valkey_server.url) as direct:
            direct.flushall()
        assert not await activity.unbroken()
        assert await activity.unbroken()
        await asyncio.to_thread(valkey_server.stop)
        failed = False
        try:
            await activity.unbroken()
        except BackendDown:
            failed = True
        assert failed
        await asyncio.to_thread(valkey_server.start)

        async def back() -> bool:
            try:
                await activity.unbroken()
            except BackendDown:
                return False
            return True

        await until(back, "it answers again")
    finally:
        await client.aclose()
