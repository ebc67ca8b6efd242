"""Copying a workspace's files: which states allow it, and whether the files changed while they were read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from codehub.domain.model import DesiredState, HomeCtx, Operation, Phase, Workspace


@dataclass(frozen=True, slots=True)
class FromArchive:
    archive_key: str


@dataclass(frozen=True, slots=True)
class FromHome:
    """`stamp` changes with every requested start: everything read under one stamp is one consistent state."""

    ctx: HomeCtx
    stamp: str


@dataclass(frozen=True, slots=True)
class NotNow:
    why: str


Source = FromArchive | FromHome | NotNow

_RESTS = (DesiredState.STANDBY, DesiredState.ARCHIVED)


def source_of(original: Workspace) -> Source:
    """Return the source of a copy's files.

    The original must be at rest: a home that programs write to is not consistent.
    """
    if original.deleted_at is not None or original.desired_state is DesiredState.DELETED:
        return NotNow("the original was deleted")
    if original.phase is Phase.ERROR or original.error_reason is not None:
        return NotNow("the original is in ERROR: start or recover it first")
    if original.desired_state not in _RESTS or original.phase is Phase.RUNNING:
        return NotNow("the original is running: stop it first, so that its files are copied in one state")
    if original.operation is not Operation.NONE:
        return NotNow("the original is busy: wait until its operation has finished")
    if original.phase is Phase.ARCHIVED and original.archive_key is not None and original.home_ctx is None:
        return FromArchive(original.archive_key)
    if original.phase is Phase.STANDBY and original.home_ctx is not None:
        return FromHome(original.home_ctx, _stamp(original))
    return NotNow("the original has no files yet: start it once")


def _stamp(original: Workspace) -> str:
    # A requested start is an access, and a phase change records its time.
    times = [at for at in (original.last_access_at, original.phase_changed_at) if at is not None]
    return f"{_micros(max(times))}"


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)
