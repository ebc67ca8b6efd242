"""Homes: the volumes that hold what users wrote. Whole or not there at all.

Every destructive method checks the fence right before each irreversible call and touches only the incarnation it was
given. All are idempotent and can be killed at any instant and repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from codehub.domain.model import HomeCtx
from codehub.ports.fence import Fence, Report
from codehub.ports.instances import Mount


@dataclass(frozen=True, slots=True)
class HomeKey:
    """Which home: the workspace's id, and its `home_store_key` (`users/{user}/workspaces/{id}/home`)."""

    workspace_id: str
    store_key: str


class HomeState(StrEnum):
    WHOLE = "Ready"
    INCOMPLETE = "Incomplete"
    ABSENT = "NotFound"


@dataclass(frozen=True, slots=True)
class HomeStatus:
    state: HomeState
    ctx: HomeCtx | None = None  # of a whole one: its incarnation and restore marker as kept beside it


@dataclass(frozen=True, slots=True)
class ArchiveReceipt:
    """A committed and verified archive: the data, then its meta, both there and right."""

    archive_key: str
    op_id: str
    bytes: int
    sha256: str


class Homes(Protocol):
    """One backend: local-dir, docker-volume or pvc."""

    @property
    def name(self) -> str:
        """As in `workspaces.storage_backend`."""
        ...

    async def ping(self) -> None:
        """Raises BackendDown unless the backend answers."""
        ...

    async def list_all(self) -> Mapping[str, HomeStatus]:
        """Every home of this installation by workspace id, in one listing."""
        ...

    async def status(self, home: HomeKey) -> HomeStatus: ...

    async def size(self, home: HomeKey) -> int | None:
        """Bytes on disk, also of a home in use. None where it cannot be known at a bounded cost."""
        ...

    async def provision(self, home: HomeKey, incarnation: str, fence: Fence) -> HomeCtx:
        """An empty whole volume, or the whole one that is there, whose ctx is returned.

        Half-made leftovers are swept; a whole volume is never emptied.
        """
        ...

    def mount(self, home: HomeKey) -> Mount: ...

    async def archive(self, home: HomeKey, ctx: HomeCtx, op_id: str, report: Report, fence: Fence) -> ArchiveReceipt:
        """Volume → `{workspace id}/{op_id}/home.tar.zst` and its meta, verified. Already there: just the receipt."""
        ...

    async def archive_empty(self, home: HomeKey, op_id: str, fence: Fence) -> ArchiveReceipt:
        """The archive of an empty home, without a volume."""
        ...

    async def restore(
        self, home: HomeKey, archive_key: str, incarnation: str, report: Report, fence: Fence
    ) -> HomeCtx:
        """Archive → a new whole volume of this incarnation, in one step at the end; never replaces a whole volume.

        A whole volume restored from this very archive is the answer at once; another whole volume is Conflict.
        """
        ...

    async def deprovision(self, home: HomeKey, ctx: HomeCtx, fence: Fence) -> None:
        """Remove this incarnation. Absent is success; another incarnation is FenceLost."""
        ...

    async def purge(self, home: HomeKey, fence: Fence) -> None:
        """Remove whatever is left of this home. For the end of retention only."""
        ...

    async def sweep(self, home: HomeKey, fence: Fence) -> None:
        """Remove staging of operations that are over. For a workspace at rest."""
        ...
