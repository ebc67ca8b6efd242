"""A coordinator on PostgreSQL: the stores, the election and the listener that `CoordinatorDeps` wants, from one database.

For `codehub serve coordinator`: everything else (backends, Redis, profiles) is handed in by whoever wires the process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from codehub.adapters.http_activity import HttpActivity
from codehub.adapters.postgres.control_gc import PostgresGcStore
from codehub.adapters.postgres.control_leader import PostgresElection
from codehub.adapters.postgres.control_notifications import PostgresNotifications
from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.postgres.control_ttl import PostgresTtlStore
from codehub.adapters.postgres.pool import Database
from codehub.adapters.system_clock import SystemClock
from codehub.control.term import (
    ControllerSettings,
    CoordinatorDeps,
    CoordinatorSettings,
    GcSettings,
    ProfileOf,
    TtlSettings,
)
from codehub.ports.activity import KeptActivity
from codehub.ports.archives import Archives
from codehub.ports.bus import Bus
from codehub.ports.homes import Homes
from codehub.ports.instances import Instances
from codehub.settings import Settings


def coordinator_settings(settings: Settings) -> CoordinatorSettings:
    return CoordinatorSettings(
        node_id=settings.node_id,
        controller=ControllerSettings(
            idle_interval_s=settings.idle_interval_s,
            active_interval_s=settings.active_interval_s,
            active_duration_s=settings.active_duration_s,
            operation_timeout_s=settings.operation_timeout_s,
            max_parallel=settings.max_parallel,
            max_retry=settings.max_retry,
            deleted_retention_s=settings.deleted_retention_s,
        ),
        ttl=TtlSettings(
            interval_s=settings.ttl_interval_s,
            standby_s=settings.ttl_standby_s,
            archive_s=settings.ttl_archive_s,
            flush_interval_s=settings.flush_interval_s,
        ),
        gc=GcSettings(
            interval_s=settings.gc_interval_s,
            keep=settings.archive_keep,
            deleted_retention_s=settings.deleted_retention_s,
        ),
        health_bind=settings.health_bind,
        sse_prefix=settings.sse_prefix,
        wake_prefix=settings.wake_prefix,
    )


def coordinator_deps(
    database: Database,
    *,
    lock_id: int,
    retry_interval_s: float,
    bus: Bus,
    activity: KeptActivity,
    instances: Mapping[str, Instances],
    homes: Mapping[str, Homes],
    archives: Archives,
    profile_of: ProfileOf,
    new_id: Callable[[], str],
) -> CoordinatorDeps:
    """`database` is open; its pool should have about 10 connections. The lock and the listener connect by themselves."""
    clock = SystemClock()
    return CoordinatorDeps(
        election=PostgresElection(database.url, lock_id=lock_id, retry_interval_s=retry_interval_s, clock=clock),
        store=PostgresControlStore(database),
        ttl_store=PostgresTtlStore(database),
        gc_store=PostgresGcStore(database),
        notifications=PostgresNotifications(database.url),
        bus=bus,
        activity=activity,
        asks_activity=HttpActivity(),
        instances=instances,
        homes=homes,
        archives=archives,
        profile_of=profile_of,
        clock=clock,
        new_id=new_id,
        random=random.random,
    )
