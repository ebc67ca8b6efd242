"""The edges: which operation leads from which level towards which desired state, and when it is done. Data.

The control plane runs on these tables, and `docs/states.md` is generated from them: a requirement holds both the rule and
its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from codehub.domain.gc import archive_key_of
from codehub.domain.model import DesiredState, Operation, Phase, Workspace
from codehub.domain.observed import instance_runs


@dataclass(frozen=True, slots=True)
class Requirement:
    """A predicate on a workspace's row, with its text for the page."""

    text: str
    holds: Callable[[Workspace], bool]


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge with `only_if` takes precedence over all others while its requirement holds."""

    level: Phase
    desired: frozenset[DesiredState]
    operation: Operation
    reaches: Phase
    only_if: Requirement | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What an operation does, when it is done, and which conditions must be known before it continues."""

    does: str
    done_when: tuple[Requirement, ...]
    needs: frozenset[str]
    # The desired state that cancels this operation while it is under way. Nothing it did is lost.
    cancelled_for: DesiredState | None = None


def _is_restored(workspace: Workspace) -> bool:
    ctx = workspace.home_ctx
    return ctx is not None and ctx.restore_marker == workspace.archive_key


_VOLUME_READY = Requirement("volume_ready", lambda row: row.conditions.volume_ready.is_true)
_VOLUME_GONE = Requirement("volume_ready is NotFound", lambda row: row.conditions.volume_ready.reason == "NotFound")
_ARCHIVE_READY = Requirement("archive_ready", lambda row: row.conditions.archive_ready.is_true)
_KEY_SET = Requirement("archive_key is set", lambda row: row.archive_key is not None)
# An older archive does not replace a volume that disappeared.
_OWN_KEY = Requirement(
    "archive_key is this operation's",
    lambda row: row.archive_key == archive_key_of(row.id, row.archive_op_id or ""),
)
_RESTORED = Requirement("home_ctx.restore_marker == archive_key", _is_restored)
_CONTAINER_READY = Requirement("container_ready", lambda row: row.conditions.container_ready.is_true)
_INSTANCE_RUNS = Requirement("an instance runs", lambda row: instance_runs(row.conditions.container_ready) is True)
_INSTANCE_STOPPED = Requirement(
    "container_ready is Stopped or NotFound", lambda row: instance_runs(row.conditions.container_ready) is False
)
_INSTANCE_GONE = Requirement(
    "container_ready is NotFound", lambda row: row.conditions.container_ready.reason == "NotFound"
)

_IS_A_COPY = Requirement(
    "it is a copy without an archive yet", lambda row: row.copy_of is not None and row.archive_key is None
)

_IMAGE_WAITS = Requirement("an image of its devcontainer.json is ready", lambda row: row.dev_image_next is not None)

_R, _S, _A, _D = DesiredState.RUNNING, DesiredState.STANDBY, DesiredState.ARCHIVED, DesiredState.DELETED

EDGES: tuple[Edge, ...] = (
    # Recovery from ContainerWithoutVolume: an instance that runs without its volume is removed first (INV-6).
    Edge(Phase.PENDING, frozenset({_S, _R, _A}), Operation.STOPPING, Phase.PENDING, _INSTANCE_RUNS),
    Edge(Phase.ARCHIVED, frozenset({_S, _R, _A}), Operation.STOPPING, Phase.ARCHIVED, _INSTANCE_RUNS),
    Edge(Phase.PENDING, frozenset({_S, _R, _A}), Operation.DUPLICATING, Phase.ARCHIVED, _IS_A_COPY),
    Edge(Phase.PENDING, frozenset({_S, _R}), Operation.PROVISIONING, Phase.STANDBY),
    Edge(Phase.PENDING, frozenset({_A}), Operation.CREATE_EMPTY_ARCHIVE, Phase.ARCHIVED),
    Edge(Phase.ARCHIVED, frozenset({_S, _R}), Operation.RESTORING, Phase.STANDBY),
    Edge(Phase.STANDBY, frozenset({_R}), Operation.STARTING, Phase.RUNNING),
    Edge(Phase.RUNNING, frozenset({_S, _A, _D}), Operation.STOPPING, Phase.STANDBY),
    Edge(Phase.RUNNING, frozenset({_R}), Operation.STOPPING, Phase.STANDBY, _IMAGE_WAITS),
    Edge(Phase.STANDBY, frozenset({_A, _D}), Operation.ARCHIVING, Phase.ARCHIVED),
    Edge(Phase.PENDING, frozenset({_D}), Operation.DELETING, Phase.DELETED),
    Edge(Phase.ARCHIVED, frozenset({_D}), Operation.DELETING, Phase.DELETED),
    Edge(Phase.ERROR, frozenset({_D}), Operation.DELETING, Phase.DELETED),
)

WORK: Mapping[Operation, Work] = MappingProxyType(
    {
        Operation.PROVISIONING: Work("create the volume", (_VOLUME_READY,), frozenset({"volume_ready"})),
        Operation.CREATE_EMPTY_ARCHIVE: Work(
            "upload an empty archive", (_ARCHIVE_READY, _KEY_SET), frozenset({"volume_ready"})
        ),
        Operation.DUPLICATING: Work(
            "archive the original's home, and see that nothing ran in it meanwhile",
            (_ARCHIVE_READY, _KEY_SET),
            frozenset({"volume_ready"}),
        ),
        Operation.RESTORING: Work(
            "archive → volume",
            (_VOLUME_READY, _RESTORED),
            frozenset({"volume_ready", "archive_ready"}),
            cancelled_for=DesiredState.ARCHIVED,
        ),
        Operation.STARTING: Work(
            "start the instance",
            (_CONTAINER_READY, _VOLUME_READY),
            frozenset({"volume_ready"}),
            cancelled_for=DesiredState.STANDBY,
        ),
        Operation.STOPPING: Work(
            "stop the instance, keep the volume", (_INSTANCE_STOPPED,), frozenset({"container_ready"})
        ),
        Operation.ARCHIVING: Work(
            "delete the instance and see it gone; volume → archive; then delete the volume",
            (_VOLUME_GONE, _ARCHIVE_READY, _OWN_KEY),
            frozenset({"volume_ready", "container_ready"}),
            cancelled_for=DesiredState.STANDBY,
        ),
        Operation.DELETING: Work(
            "remove what is left of the instance; a volume goes only into a committed, verified archive;"
            " then set deleted_at",
            (_VOLUME_GONE, _INSTANCE_GONE),
            frozenset({"volume_ready", "container_ready"}),
        ),
    }
)


def edge_from(level: Phase, desired: DesiredState) -> Edge | None:
    """Return the unconditional edge from this level towards this desired state, or None if there is nothing to do."""
    return next(
        (edge for edge in EDGES if edge.level is level and desired in edge.desired and edge.only_if is None), None
    )


def next_edge(workspace: Workspace, level: Phase) -> Edge | None:
    """Return the edge that this workspace takes from this level: the first in the table whose requirement holds."""
    desired = workspace.desired_state
    for edge in EDGES:
        if (
            edge.level is level
            and desired in edge.desired
            and (edge.only_if is None or edge.only_if.holds(workspace))
        ):
            return edge
    return None


def cancels_to(workspace: Workspace) -> DesiredState | None:
    """Return the desired state after cancelling the current operation, or None if it cannot be cancelled.

    An archive operation whose key is committed cannot be cancelled: its volume may be partly removed.
    """
    work = WORK.get(workspace.operation)
    if work is None or (workspace.operation is Operation.ARCHIVING and _OWN_KEY.holds(workspace)):
        return None
    return work.cancelled_for


def is_cancelled(workspace: Workspace) -> bool:
    """Return whether the owner requested to cancel the current operation and that is still possible."""
    cancelled = workspace.cancel_op_started_at
    return cancelled is not None and cancelled == workspace.op_started_at and cancels_to(workspace) is not None


def is_done(workspace: Workspace) -> bool:
    """Return whether the conditions show that the current operation is done (INV-1)."""
    work = WORK.get(workspace.operation)
    return work is not None and all(requirement.holds(workspace) for requirement in work.done_when)
