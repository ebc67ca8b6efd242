"""The result of one observation of the backends, and the conditions derived from it.

A part that could not be observed is None and becomes Unknown, never False. This module also decides whether an existing
volume is *the* volume: its incarnation is the recorded one, or nothing is recorded and it was created from what is
recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from codehub.domain.model import (
    Blocked,
    Condition,
    Conditions,
    ConditionStatus,
    ErrorReason,
    HomeCtx,
    Operation,
    Phase,
    Workspace,
)


class VolumeState(StrEnum):
    COMPLETE = "Ready"
    INCOMPLETE = "Incomplete"
    ABSENT = "NotFound"


@dataclass(frozen=True, slots=True)
class VolumeSeen:
    state: VolumeState
    ctx: HomeCtx | None = None


@dataclass(frozen=True, slots=True)
class InstanceSeen:
    """`healthy` is None while undecided: it runs, but has neither answered nor failed for long enough."""

    exists: bool
    running: bool = False
    healthy: bool | None = None
    detail: str = ""
    unknown: str = ""  # why its run state is unknown


@dataclass(frozen=True, slots=True)
class Unseen:
    """Which backend does not answer, and since when."""

    why: str
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """One observation. None: could not be observed (the backend is down or currently absent)."""

    volume: VolumeSeen | None = None
    archive: bool | None = None  # data and commit marker at `archive_key`; meaningless without a key
    instance: InstanceSeen | None = None
    # Why a part could not be observed, by field name.
    unseen: Mapping[str, Unseen] = field(default_factory=dict)


_NOT_OBSERVED = "NotObserved"
# As long as the retries of one action take. Shorter outages are not reported.
UNREACHABLE_AFTER = timedelta(seconds=10)
# During these operations the volume may be missing, because they remove it or bring it back.
VOLUME_MAY_BE_AWAY = frozenset({Operation.ARCHIVING, Operation.RESTORING, Operation.DELETING})
# During these operations an instance without a volume is about to be removed.
_TAKES_INSTANCE_AWAY = frozenset({Operation.STOPPING, Operation.ARCHIVING, Operation.DELETING})
# Reasons that mean an instance exists and runs, regardless of its health.
_RUNS = frozenset({"Running", "NotHealthy", "NotAnswered"})
_RUNS_NOT = frozenset({"Stopped", "NotFound"})


def instance_runs(container: Condition) -> bool | None:
    """Return whether an instance runs, healthy or not. None if unknown."""
    if container.reason in _RUNS:
        return True
    return False if container.reason in _RUNS_NOT else None


def is_recovering(workspace: Workspace) -> bool:
    """Return whether a user requested a retry after ERROR and nothing was decided since."""
    return workspace.phase is Phase.ERROR and workspace.error_reason is None


def apply_observation(workspace: Workspace, seen: Observed, now: datetime) -> Workspace:
    """Return the workspace with updated conditions.

    Adopts the volume's ctx if the observation proves that the volume is ours.
    """
    volume, ctx = _volume(workspace, seen)
    archive = _archive(workspace, seen)
    container = _container(workspace.conditions.container_ready, seen)
    known = replace(workspace, home_ctx=ctx)
    healthy = _healthy(known, volume, archive, container)
    old = workspace.conditions
    conditions = Conditions(
        volume_ready=_moved(old.volume_ready, volume, now),
        archive_ready=_moved(old.archive_ready, archive, now),
        container_ready=_moved(old.container_ready, container, now),
        healthy=_moved(old.healthy, healthy, now),
    )
    return known if conditions == old else replace(known, conditions=conditions)


def _moved(old: Condition, new: Condition, now: datetime) -> Condition:
    """Change `last_transition_time` only if the status changes. What cannot be observed is unknown since its backend is."""
    before, since = old.last_transition_time, new.last_transition_time or now
    if before is not None:
        since = before if old.status is new.status else max(before, since)
    return replace(new, last_transition_time=since)


def _volume(workspace: Workspace, observed: Observed) -> tuple[Condition, HomeCtx | None]:
    recorded, seen = workspace.home_ctx, observed.volume
    if seen is None:
        return _unseen(observed, "volume", "the storage backend does not answer"), recorded
    if seen.state is not VolumeState.COMPLETE:
        return Condition(ConditionStatus.FALSE, seen.state.value), recorded
    if recorded is None and _is_made_from_what_is_recorded(workspace, seen.ctx):
        recorded = seen.ctx
    if recorded is not None and (seen.ctx is None or seen.ctx.incarnation == recorded.incarnation):
        return Condition(ConditionStatus.TRUE, "Ready"), recorded
    # A late effect of a deposed leader, or another disk: never treated as the home, and never removed unarchived.
    return Condition(ConditionStatus.FALSE, "Incomplete", "a volume of another incarnation is in its place"), recorded


def _is_made_from_what_is_recorded(workspace: Workspace, ctx: HomeCtx | None) -> bool:
    """Return whether an attempt whose answer was lost created this volume: it contains exactly what is recorded."""
    return ctx is not None and ctx.restore_marker == workspace.archive_key


def _archive(workspace: Workspace, observed: Observed) -> Condition:
    seen = observed.archive
    if workspace.archive_key is None:
        return Condition(ConditionStatus.FALSE, "NoArchive")
    if seen is None:
        return _unseen(observed, "archive", "the archive store does not answer")
    return (
        Condition(ConditionStatus.TRUE, "ArchiveUploaded") if seen else Condition(ConditionStatus.FALSE, "NotFound")
    )


def _container(old: Condition, observed: Observed) -> Condition:
    seen = observed.instance
    if seen is None:
        return _unseen(observed, "instance", "the instance backend does not answer")
    if seen.unknown:
        return _unknown(seen.unknown)
    if not seen.exists:
        return Condition(ConditionStatus.FALSE, "NotFound", seen.detail)
    if not seen.running:
        return Condition(ConditionStatus.FALSE, "Stopped", seen.detail)
    if seen.healthy is None:
        # Undecided: keep what was known of a running instance. If it was not known to run, nothing is known.
        return old if old.reason in ("Running", "NotHealthy") else Condition(ConditionStatus.UNKNOWN, "NotAnswered")
    if seen.healthy:
        return Condition(ConditionStatus.TRUE, "Running")
    return Condition(ConditionStatus.FALSE, "NotHealthy", seen.detail)


def _healthy(workspace: Workspace, volume: Condition, archive: Condition, container: Condition) -> Condition:
    if volume.is_true:
        return _MET
    if volume.is_unknown:
        return _unknown("the volume could not be inspected")
    if workspace.home_ctx is not None and workspace.operation not in VOLUME_MAY_BE_AWAY:
        message = volume.message or "the home is recorded, but it is missing or incomplete"
        return Condition(ConditionStatus.FALSE, ErrorReason.DATA_LOST.value, message)
    if workspace.archive_key is not None and workspace.operation is not Operation.DELETING:
        if archive.is_false:
            return Condition(
                ConditionStatus.FALSE, ErrorReason.DATA_LOST.value, "the archive is gone and there is no volume"
            )
        if archive.is_unknown:
            return _unknown("the archive could not be inspected")
    runs = instance_runs(container)
    if runs and workspace.operation not in _TAKES_INSTANCE_AWAY:
        return Condition(
            ConditionStatus.FALSE, ErrorReason.CONTAINER_WITHOUT_VOLUME.value, "an instance runs without its volume"
        )
    return _MET if runs is not None else _unknown("the instance could not be inspected")


def blocked_by_unseen(workspace: Workspace, now: datetime) -> Blocked | None:
    """Return which part, if any, could not be observed for longer than the retries of an action take."""
    seen = workspace.conditions
    for condition in (seen.volume_ready, seen.container_ready, seen.archive_ready):
        since = condition.last_transition_time
        if condition.reason == _NOT_OBSERVED and condition.message and since and now - since >= UNREACHABLE_AFTER:
            return Blocked(ErrorReason.UNREACHABLE, condition.message, since)
    return None


_MET = Condition(ConditionStatus.TRUE, "AllConditionsMet")


def _unseen(observed: Observed, part: str, otherwise: str) -> Condition:
    unseen = observed.unseen.get(part) or Unseen(otherwise)
    return replace(_unknown(unseen.why), last_transition_time=unseen.since)


def _unknown(message: str) -> Condition:
    return Condition(ConditionStatus.UNKNOWN, _NOT_OBSERVED, message)
