"""Decides which archives are protected from the garbage collector (INV-9)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from codehub.domain.model import Phase

# An orphan is removed only if it is still one after this time, when any operation running at the first sighting has ended.
ORPHAN_GRACE = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a row of `workspaces` says about archives. `kept` holds the op ids of the newest generations."""

    workspace_id: str
    phase: Phase
    archive_key: str | None
    archive_op_id: str | None
    kept: frozenset[str]
    error_recorded: bool = False
    # Whether its complete volume or its recorded archive was observed. If not, this archive may be the only copy.
    home_is_seen: bool = True
    purged_at: datetime | None = None
    # Keys of this workspace's archives that other workspaces were created from and have not replaced yet.
    used_by_others: frozenset[str] = frozenset()
    # Op ids of copies that are being made from this workspace's home. Their archives are written among this workspace's,
    # under names that begin with these ids, and become `used_by_others` once they are recorded.
    copying: frozenset[str] = frozenset()


def archive_key_of(workspace_id: str, op_id: str) -> str:
    return f"{workspace_id}/{op_id}/home.tar.zst"


def is_protected(claim: Claim | None, op_id: str) -> bool:
    """Return whether an archive at `{workspace}/{op_id}/` must be kept.

    An archive without a row is unknown: it is kept, and `doctor` reports it. ERROR protects all archives. Deletion ends all
    protection, but only once `purged_at` is committed: until then it can be undone. An archive that a copy refers to,
    or that is being written for one, is kept regardless of the original's state.
    """
    if claim is None:
        return True
    key = archive_key_of(claim.workspace_id, op_id)
    if key in claim.used_by_others or op_id.partition(".")[0] in claim.copying:
        return True
    if claim.purged_at is not None:
        return False
    if claim.phase in (Phase.ERROR, Phase.DELETED) or claim.error_recorded or not claim.home_is_seen:
        return True
    return key == claim.archive_key or op_id == claim.archive_op_id or op_id in claim.kept


def is_due(first_seen_at: datetime, now: datetime, grace: timedelta = ORPHAN_GRACE) -> bool:
    return now - first_seen_at >= grace
