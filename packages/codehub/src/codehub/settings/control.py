"""The settings of the coordinator, and of how long workspaces run and are kept."""

from __future__ import annotations

import os
import socket
from typing import Literal, Self

from pydantic import Field, model_validator

from codehub.settings.core import CoreSettings
from codehub.settings.types import OptionalBind, Seconds, SecondsFromADay


class ControlSettings(CoreSettings):
    """Settings of the coordinator: its intervals, limits and retention."""

    node_id: str = Field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}",
        alias="COORDINATOR_NODE_ID",
        description="Name of this coordinator.",
    )
    lock_id: int = Field(
        12345,
        alias="COORDINATOR_LOCK_ID",
        description="Number of the PostgreSQL advisory lock that elects the leader.",
    )
    retry_interval_s: Seconds = Field(
        5,
        alias="COORDINATOR_RETRY_INTERVAL",
        description="Time between two attempts of a standby to get the lock.",
    )
    idle_interval_s: Seconds = Field(
        15, alias="COORDINATOR_IDLE_INTERVAL", description="Time between two resyncs when nothing happens."
    )
    active_interval_s: Seconds = Field(
        1,
        alias="COORDINATOR_ACTIVE_INTERVAL",
        description="Time between two resyncs while an operation is under way.",
    )
    max_losses: int = Field(
        3,
        ge=1,
        alias="COORDINATOR_MAX_LOSSES",
        description="How many workspaces may appear to have lost their data at once. If more do, and more than a tenth of "
        "all, CodeHub assumes a missing disk and marks none.",
    )
    active_duration_s: Seconds = Field(
        30,
        alias="COORDINATOR_ACTIVE_DURATION",
        description="How long the coordinator uses the active interval after a wake-up.",
    )
    ttl_interval_s: Seconds = Field(
        60, alias="COORDINATOR_TTL_INTERVAL", description="Time between two checks for idle workspaces."
    )
    gc_interval_s: Seconds = Field(
        14_400, alias="COORDINATOR_GC_INTERVAL", description="Time between two garbage collections of archives."
    )
    operation_timeout_s: Seconds = Field(
        600, alias="COORDINATOR_OPERATION_TIMEOUT", description="How long an operation may run without progress."
    )
    max_parallel: int = Field(
        32, gt=0, alias="COORDINATOR_MAX_PARALLEL", description="How many workspaces are processed at the same time."
    )
    health_bind: OptionalBind = Field(
        "",
        alias="COORDINATOR_HEALTH_BIND",
        description="Address and port where a coordinator serves /health/coordinator and /metrics.",
    )
    max_retry: int = Field(3, ge=0, alias="MAX_RETRY", description="How often a failed operation is retried.")

    flush_interval_s: Seconds = Field(
        30,
        alias="ACTIVITY_FLUSH_INTERVAL",
        description="How often the proxy writes activity to Redis. Values above 30 count as 30, because a template may put"
        " workspaces to sleep after a minute.",
    )
    ttl_standby_s: Seconds = Field(
        10_800,
        alias="TTL_STANDBY_SECONDS",
        description="Idle time after which a workspace is put to sleep.",
    )
    ttl_archive_s: Seconds = Field(
        86_400,
        alias="TTL_ARCHIVE_SECONDS",
        description="Time asleep after which a workspace is archived.",
    )
    busy_max_s: Seconds = Field(
        43_200,
        alias="CODEHUB_BUSY_MAX",
        description="How long a busy program keeps a workspace awake without a user present.",
    )
    port_sharing: Literal["", "owner", "users", "link"] = Field(
        "",
        alias="CODEHUB_PORT_SHARING",
        description="How widely owners may share a port: not at all, with all users, or with anyone who has a link. "
        "Unset: `link` if each workspace has its own host name (CODEHUB_WORKSPACE_HOST), otherwise `owner`.",
    )
    archive_keep: int = Field(
        2, ge=1, alias="CODEHUB_ARCHIVE_KEEP", description="How many archives of a workspace are kept."
    )
    audit_retention_s: SecondsFromADay = Field(
        31_536_000,
        alias="CODEHUB_AUDIT_RETENTION",
        description="How long events of the audit trail are kept; at least a day.",
    )
    deleted_retention_s: Seconds = Field(
        86_400,
        alias="CODEHUB_DELETED_RETENTION",
        description="How long a deleted workspace can be restored by an administrator.",
    )
    max_running_per_user: int = Field(
        2,
        ge=0,
        alias="LIMITS_MAX_RUNNING_PER_USER",
        description="How many workspaces of one user may run at the same time.",
    )
    max_running_global: int = Field(
        100, ge=0, alias="LIMITS_MAX_RUNNING_GLOBAL", description="How many workspaces may run at the same time."
    )
    max_workspaces_per_user: int = Field(
        1000,
        ge=0,
        alias="CODEHUB_MAX_WORKSPACES_PER_USER",
        description="How many workspaces one user may have, running or not; also administrators. Deleted ones do not "
        "count. 0: no limit. The default is far above what people keep. It stops programs that create workspaces without "
        "end, which take space for archives and time in each check of the coordinator.",
    )
    sse_prefix: str = Field(
        "codehub:sse:", alias="REDIS_CHANNEL_SSE_PREFIX", description="Prefix of the Redis channels for live events."
    )
    wake_prefix: str = Field(
        "codehub:wake:", alias="REDIS_CHANNEL_WAKE_PREFIX", description="Prefix of the Redis channels for wake-ups."
    )

    @model_validator(mode="after")
    def _check_activity_is_seen_in_time(self) -> Self:
        if self.ttl_standby_s <= self.flush_interval_s:
            raise ValueError(
                f"TTL_STANDBY_SECONDS ({self.ttl_standby_s:g}) must be above ACTIVITY_FLUSH_INTERVAL "
                f"({self.flush_interval_s:g}): otherwise workspaces are put to sleep before their activity is seen"
            )
        return self
