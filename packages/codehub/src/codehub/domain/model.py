"""The words of the control plane: conditions, phases, operations, and a workspace as its row says it is.

Values only. What they lead to is judged in `judge`, `plan` and `progress`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from codehub.domain.applied_template import AppliedTemplate
from codehub.domain.repository import RepositorySource
from codehub.domain.setup import SetupState


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Phase(StrEnum):
    PENDING = "PENDING"
    ARCHIVED = "ARCHIVED"
    STANDBY = "STANDBY"
    RUNNING = "RUNNING"
    ERROR = "ERROR"
    DELETING = "DELETING"
    DELETED = "DELETED"


class DesiredState(StrEnum):
    RUNNING = "RUNNING"
    STANDBY = "STANDBY"
    ARCHIVED = "ARCHIVED"
    DELETED = "DELETED"


class Operation(StrEnum):
    NONE = "NONE"
    PROVISIONING = "PROVISIONING"
    CREATE_EMPTY_ARCHIVE = "CREATE_EMPTY_ARCHIVE"
    DUPLICATING = "DUPLICATING"
    RESTORING = "RESTORING"
    STARTING = "STARTING"
    STOPPING = "STOPPING"
    ARCHIVING = "ARCHIVING"
    DELETING = "DELETING"


class Status(StrEnum):
    """The first generation's word for people and scripts; derived, never stored."""

    CREATED = "CREATED"
    PROVISIONING = "PROVISIONING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    DELETING = "DELETING"
    DELETED = "DELETED"
    ERROR = "ERROR"


class ErrorReason(StrEnum):
    TIMEOUT = "Timeout"
    DATA_LOST = "DataLost"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_WITHOUT_VOLUME = "ContainerWithoutVolume"
    ARCHIVE_CORRUPTED = "ArchiveCorrupted"
    ACTION_FAILED = "ActionFailed"
    UNREACHABLE = "Unreachable"
    RETRY_EXCEEDED = "RetryExceeded"
    OUT_OF_SPACE = "OutOfSpace"


@dataclass(frozen=True, slots=True)
class Condition:
    """One observed fact. `Unknown` is what could not be observed, never a guess."""

    status: ConditionStatus
    reason: str
    message: str = ""
    last_transition_time: datetime | None = None

    @property
    def is_true(self) -> bool:
        return self.status is ConditionStatus.TRUE

    @property
    def is_false(self) -> bool:
        return self.status is ConditionStatus.FALSE

    @property
    def is_unknown(self) -> bool:
        return self.status is ConditionStatus.UNKNOWN


NOT_OBSERVED = Condition(ConditionStatus.UNKNOWN, "NotObserved")


@dataclass(frozen=True, slots=True)
class Conditions:
    """All four, by their names on the wire: storage.volume_ready, storage.archive_ready, …"""

    volume_ready: Condition = NOT_OBSERVED
    archive_ready: Condition = NOT_OBSERVED
    container_ready: Condition = NOT_OBSERVED
    healthy: Condition = NOT_OBSERVED


# The conditions' names on the wire and in the column, by their field.
CONDITION_NAMES: Mapping[str, str] = {
    "volume_ready": "storage.volume_ready",
    "archive_ready": "storage.archive_ready",
    "container_ready": "infra.container_ready",
    "healthy": "policy.healthy",
}


@dataclass(frozen=True, slots=True)
class HomeCtx:
    """What we know of the volume we made: which incarnation it is, and which archive it was restored from.

    Set when the volume is made, None on the workspace once we removed it.
    """

    incarnation: str
    restore_marker: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the operation under way is. `done` and `total` are bytes where `unit` says so."""

    step: str
    done: int = 0
    total: int | None = None
    unit: str = "bytes"


@dataclass(frozen=True, slots=True)
class Busy:
    """What kept a workspace awake without anybody there: since when, and when it last said so."""

    reason: str
    since: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a workspace does not get on although nothing failed for good: tried again until it passes, and then gone."""

    reason: ErrorReason  # OUT_OF_SPACE or UNREACHABLE
    message: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Workspace:
    """One row of `workspaces`, whole."""

    id: str
    owner_user_id: str
    name: str
    image_ref: str
    instance_backend: str
    storage_backend: str
    home_store_key: str
    desired_state: DesiredState
    created_at: datetime
    updated_at: datetime
    phase_changed_at: datetime
    description: str = ""
    memo: str = ""
    home_ctx: HomeCtx | None = None
    conditions: Conditions = field(default_factory=Conditions)
    phase: Phase = Phase.PENDING
    operation: Operation = Operation.NONE
    op_started_at: datetime | None = None
    progress: Progress | None = None
    archive_op_id: str | None = None
    archive_key: str | None = None
    observed_at: datetime | None = None
    last_access_at: datetime | None = None
    error_reason: ErrorReason | None = None
    error_message: str | None = None
    error_count: int = 0
    blocked: Blocked | None = None
    retry_at: datetime | None = None
    deleted_at: datetime | None = None
    purged_at: datetime | None = None
    # Its owner cancelled the operation that began then.
    cancel_op_started_at: datetime | None = None
    keep_awake_until: datetime | None = None
    # What it runs by; what it runs by from its next start on; and the newest version there is of that template.
    template: AppliedTemplate | None = None
    template_next: AppliedTemplate | None = None
    template_latest: int | None = None
    # The workspace whose files this one began with.
    copy_of: str | None = None
    busy: Busy | None = None
    repo: RepositorySource | None = None
    setup: SetupState | None = None
    setup_retry: int = 0
    # How large its home was when it was last looked at; None when that is unknown.
    disk_bytes: int | None = None
    disk_checked_at: datetime | None = None
    # The row has a value that this version does not know: it can be shown, but not acted on.
    of_newer_version: bool = False


@dataclass(frozen=True, slots=True)
class WorkspaceWithOwner:
    """A workspace with its owner's name, and the version of its row (PostgreSQL's xmin) by which a change is noticed."""

    workspace: Workspace
    owner: str
    version: str
    # Of the archive that it would be restored from; None when that is unknown.
    archive_bytes: int | None = None
