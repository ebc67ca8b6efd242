"""The dependencies and settings of the coordinator's components."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from codehub.control.dev_images import DevImageDeps
from codehub.domain.gc import ORPHAN_GRACE
from codehub.domain.limits import RunningLimits
from codehub.domain.model import Workspace
from codehub.domain.profiles import AppProfile
from codehub.ports.activity import DurableActivity
from codehub.ports.archives import Archives
from codehub.ports.bus import Bus
from codehub.ports.clock import Clock
from codehub.ports.control_store import ControlStore, DiskStore, GcStore, ScheduleStore, StoreRegistry, TtlStore
from codehub.ports.homes import Homes
from codehub.ports.instances import Instances
from codehub.ports.leadership import Election
from codehub.ports.liveness import AsksActivity
from codehub.ports.notifications import Notifications
from codehub.ports.setup import Links, SetupDesk
from codehub.ports.stores import IdentifiedStore


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    idle_interval_s: float = 15.0
    active_interval_s: float = 1.0
    active_duration_s: float = 30.0
    operation_timeout_s: float = 600.0
    max_parallel: int = 32
    max_retry: int = 3
    deleted_retention_s: float = 86_400.0
    # More apparent losses than this, and more than a tenth of all, are treated as a configuration error.
    max_losses: int = 3


@dataclass(frozen=True, slots=True)
class TtlSettings:
    interval_s: float = 60.0
    standby_s: float = 600.0
    archive_s: float = 1800.0
    flush_interval_s: float = 30.0
    busy_max_s: float = 43_200.0


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    interval_s: float = 20.0
    limits: RunningLimits = field(default_factory=lambda: RunningLimits(1 << 30, 1 << 30))


@dataclass(frozen=True, slots=True)
class DiskSettings:
    interval_s: float = 30.0
    # Between two measurements of one home: `domain.disk.pause_after` chooses.
    shortest_s: float = 60.0
    longest_s: float = 600.0
    # How long a tick may measure homes whose longest pause is not over yet: 5 % of the time.
    early_s: float = 1.5
    per_tick: int = 50
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class GcSettings:
    interval_s: float = 14_400.0
    keep: int = 2
    deleted_retention_s: float = 86_400.0
    # Not configurable; only the simulation shortens it.
    orphan_grace_s: float = ORPHAN_GRACE.total_seconds()


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    node_id: str
    controller: ControllerSettings = ControllerSettings()
    ttl: TtlSettings = TtlSettings()
    gc: GcSettings = GcSettings()
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    disk: DiskSettings = DiskSettings()
    # Delay after a lost term or a failed campaign. Short, because a standby waits inside the lock call.
    campaign_pause_s: float = 0.5
    health_bind: str = ""
    sse_prefix: str = "codehub:sse:"
    wake_prefix: str = "codehub:wake:"


# (image, profile) of a workspace: the profile's name or an image reference, and how it is run.
ProfileOf = Callable[[Workspace], tuple[str, AppProfile]]


@dataclass(frozen=True, slots=True)
class CoordinatorDeps:
    """The outside world as ports. `profile_of` raises NotFound if the workspace's profile no longer exists."""

    election: Election
    store: ControlStore
    ttl_store: TtlStore
    gc_store: GcStore
    schedule_store: ScheduleStore
    disk_store: DiskStore
    notifications: Notifications
    bus: Bus
    activity: DurableActivity
    asks_activity: AsksActivity
    instances: Mapping[str, Instances]
    homes: Mapping[str, Homes]
    archives: Archives
    profile_of: ProfileOf
    clock: Clock
    new_id: Callable[[], str]
    random: Callable[[], float]
    # Stores that carry the installation's id, checked before leading.
    stores: Sequence[IdentifiedStore] = ()
    registry: StoreRegistry | None = None
    installation_id: str = ""
    # Setting up running workspaces; None where nothing is set up (the simulation).
    setup_desk: SetupDesk | None = None
    setup_links: Links | None = None
    dev_images: DevImageDeps | None = None
