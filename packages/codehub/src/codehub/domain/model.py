"""The core types of the control plane: conditions, phases, operations, and a workspace as stored in its row.

Values only. `judge`, `plan` and `progress` contain the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from codehub.domain.applied_template import AppliedTemplate
from codehub.domain.dev_image import DevImage
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
    """The first release's one-word status for users and scripts. Derived, never stored."""

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
    """One observed fact. `Unknown` means that it could not be observed; it is never a guess."""

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
    """The four conditions. Their names in the API are storage.volume_ready, storage.archive_ready, …"""

    volume_ready: Condition = NOT_OBSERVED
    archive_ready: Condition = NOT_OBSERVED
    container_ready: Condition = NOT_OBSERVED
    healthy: Condition = NOT_OBSERVED


# The names of the conditions in the API and in the column, by field.
CONDITION_NAMES: Mapping[str, str] = {
    "volume_ready": "storage.volume_ready",
    "archive_ready": "storage.archive_ready",
    "container_ready": "infra.container_ready",
    "healthy": "policy.healthy",
}


@dataclass(frozen=True, slots=True)
class HomeCtx:
    """The recorded context of the volume we created: its incarnation and the archive it was restored from.

    Set when the volume is created. None on the workspace after we removed it.
    """

    incarnation: str
    restore_marker: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the current operation. `done` and `total` are bytes if `unit` says so."""

    step: str
    done: int = 0
    total: int | None = None
    unit: str = "bytes"


@dataclass(frozen=True, slots=True)
class Busy:
    """Work that kept a workspace awake without user activity: since when, and when it was last reported."""

    reason: str
    since: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a workspace makes no progress although nothing failed permanently. Retried until it passes, then cleared."""

    reason: ErrorReason  # OUT_OF_SPACE or UNREACHABLE
    message: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Workspace:
    """A complete row of `workspaces`."""

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
    # The start time of the operation that the owner cancelled.
    cancel_op_started_at: datetime | None = None
    keep_awake_until: datetime | None = None
    # The current template, the template from the next start on, and the newest version of that template.
    template: AppliedTemplate | None = None
    template_next: AppliedTemplate | None = None
    template_latest: int | None = None
    # The workspace whose files this one was created with.
    copy_of: str | None = None
    busy: Busy | None = None
    repo: RepositorySource | None = None
    setup: SetupState | None = None
    setup_retry: int = 0
    # The image of its devcontainer.json that it runs with, and the one that it is restarted with. `dev_image_auto` is set
    # until it has one: later changes of devcontainer.json wait for its owner.
    dev_image: DevImage | None = None
    dev_image_next: DevImage | None = None
    dev_image_auto: bool = False
    # How large its home was when it was last measured; None when that is unknown.
    disk_bytes: int | None = None
    disk_checked_at: datetime | None = None
    # The row contains a value that this version does not know: it can be shown, but not acted on.
    of_newer_version: bool = False


@dataclass(frozen=True, slots=True)
class WorkspaceWithOwner:
    """A workspace with its owner's name and its row version (PostgreSQL's xmin), which detects changes."""

    workspace: Workspace
    owner: str
    version: str
    # Of the archive that it would be restored from; None when that is unknown.
    archive_bytes: int | None = None
    # The owner's time zone, empty for UTC; None if the owner is disabled, whose schedules are not followed.
    schedule_zone: str | None = None
