"""Homes: the volumes with users' files. A home is either complete or absent.

Every destructive method checks the fence right before each irreversible call and changes only the given incarnation. All
methods are idempotent and can be killed at any instant and repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from codehub.domain.model import HomeCtx
from codehub.domain.template_options import NO_OPTIONS, KubernetesOptions
from codehub.ports.fence import Fence, Report
from codehub.ports.instances import Mount

# How many homes are archived and restored at the same time, in all backends together.
ARCHIVES_AT_ONCE: Final = 4
RESTORES_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class HomeKey:
    """Identifies a home: the workspace's id, and its `home_store_key` (`users/{user}/workspaces/{id}/home`)."""

    workspace_id: str
    store_key: str
    # The template's options. Not part of the identity: they say where pods that read or write the home may run.
    kubernetes: KubernetesOptions = field(default=NO_OPTIONS, compare=False)


class HomeState(StrEnum):
    COMPLETE = "Ready"
    INCOMPLETE = "Incomplete"
    ABSENT = "NotFound"


@dataclass(frozen=True, slots=True)
class HomeStatus:
    state: HomeState
    ctx: HomeCtx | None = None  # for a complete home: the incarnation and restore marker stored beside it


@dataclass(frozen=True, slots=True)
class ArchiveReceipt:
    """A committed and verified archive: the data and its meta both exist and are correct."""

    archive_key: str
    op_id: str
    bytes: int
    sha256: str


class Homes(Protocol):
    """One backend: local-dir, docker-volume or pvc."""

    @property
    def name(self) -> str:
        """The name in `workspaces.storage_backend`."""
        ...

    async def ping(self) -> None:
        """Raise BackendDown unless the backend answers."""
        ...

    async def list_all(self) -> Mapping[str, HomeStatus]:
        """Return every home of this installation by workspace id, in one listing."""
        ...

    async def status(self, home: HomeKey) -> HomeStatus: ...

    async def size(self, home: HomeKey) -> int | None:
        """Bytes on disk, also of a home in use. None where it cannot be known at a bounded cost."""
        ...

    async def limit(self, home: HomeKey, limit: int | None) -> bool:
        """Limit a home at rest to so many bytes; None is no limit. Returns False where that cannot be enforced.

        What is above the limit already stays. Archiving and restoring are not limited.
        """
        ...

    async def provision(self, home: HomeKey, incarnation: str, fence: Fence) -> HomeCtx:
        """Create an empty complete volume, or keep the existing complete one. Returns its ctx.

        Incomplete leftovers are removed; a complete volume is never emptied.
        """
        ...

    def mount(self, home: HomeKey) -> Mount: ...

    async def archive(self, home: HomeKey, ctx: HomeCtx, op_id: str, report: Report, fence: Fence) -> ArchiveReceipt:
        """Archive the volume to `{workspace id}/{op_id}/home.tar.zst` with its meta, and verify it.

        If it exists, return the receipt.
        """
        ...

    async def archive_empty(self, home: HomeKey, op_id: str, fence: Fence) -> ArchiveReceipt:
        """Create the archive of an empty home, without a volume."""
        ...

    async def restore(
        self,
        home: HomeKey,
        archive_key: str,
        incarnation: str,
        report: Report,
        fence: Fence,
        sha256: str | None = None,
    ) -> HomeCtx:
        """Restore an archive to a new complete volume of this incarnation, atomically at the end.

        Raises ArchiveCorrupted unless its digest is `sha256`, if given: whoever can write to the archive store could have
        replaced it with another archive, of another workspace or an older one.
        Never replaces a complete volume: one restored from the same archive is returned immediately, another raises
        Conflict.
        """
        ...

    async def deprovision(self, home: HomeKey, ctx: HomeCtx, fence: Fence) -> None:
        """Remove this incarnation. Absent is success; another incarnation raises FenceLost."""
        ...

    async def purge(self, home: HomeKey, fence: Fence) -> None:
        """Remove everything that is left of this home. Only for the end of retention."""
        ...

    async def sweep(self, home: HomeKey, fence: Fence) -> None:
        """Remove staging data of finished operations. For a workspace at rest."""
        ...
