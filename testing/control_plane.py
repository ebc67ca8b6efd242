"""The real control plane for tests of what people see: real PostgreSQL and Valkey, with homes and instances in memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

import uuid_utils

from codehub.adapters.memory.world import MemoryArchives, MemoryHomes, MemoryInstances
from codehub.adapters.postgres.control_gc import PostgresGcStore
from codehub.adapters.postgres.control_leader import PostgresElection
from codehub.adapters.postgres.control_notifications import PostgresNotifications
from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.postgres.control_ttl import PostgresTtlStore
from codehub.adapters.postgres.pool import Database
from codehub.adapters.redis.activity import RedisActivity
from codehub.adapters.redis.bus import RedisBus
from codehub.adapters.redis.client import connect
from codehub.adapters.system_clock import SystemClock
from codehub.control.coordinator import CoordinatorDeps, CoordinatorSettings, run_coordinator
from codehub.domain.model import Workspace
from codehub.domain.profiles import AppProfile
from codehub.ports.instances import Upstream


@dataclass(frozen=True, slots=True)
class World:
    """What the coordinator acts on."""

    instances: MemoryInstances = field(default_factory=MemoryInstances)
    archives: MemoryArchives = field(default_factory=MemoryArchives)


class _AsksNobody:
    async def last_active(self, upstream: Upstream, path: str, now: datetime) -> datetime | None:
        return None


def _profile_of(workspace: Workspace) -> tuple[str, AppProfile]:
    return workspace.image_ref, AppProfile(name=workspace.image_ref, command=("true",))


@asynccontextmanager
async def control_plane(database: Database, redis_url: str) -> AsyncIterator[World]:
    """One coordinator that leads until the block ends."""
    world = World()
    clock = SystemClock()
    client = connect(redis_url)
    deps = CoordinatorDeps(
        election=PostgresElection(database.url, lock_id=12345, retry_interval_s=5, clock=clock),
        store=PostgresControlStore(database),
        ttl_store=PostgresTtlStore(database),
        gc_store=PostgresGcStore(database),
        notifications=PostgresNotifications(database.url),
        bus=RedisBus(client),
        activity=RedisActivity(client),
        asks_activity=_AsksNobody(),
        instances={"process": world.instances},
        homes={"local-dir": MemoryHomes(world.archives)},
        archives=world.archives,
        profile_of=_profile_of,
        clock=clock,
        new_id=lambda: str(uuid_utils.uuid7()),
        random=random.random,
    )
    leading = asyncio.create_task(run_coordinator(CoordinatorSettings(node_id="test-coordinator"), deps))
    try:
        yield world
    finally:
        leading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leading
        await client.aclose()
