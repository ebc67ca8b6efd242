"""The archive store as used by observation and GC: keys, never contents.

An archive is `{workspace_id}/{op_id}/home.tar.zst` with `home.tar.zst.meta` beside it as its commit marker. Methods raise
BackendDown if the store does not answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from codehub.ports.fence import Fence
from codehub.ports.homes import ArchiveReceipt


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    """Everything below one `{workspace_id}/{op_id}/`, complete or not."""

    workspace_id: str
    op_id: str
    archive_key: str


class ArchiveReceipts(Protocol):
    async def receipts(self, workspace_id: str) -> Sequence[ArchiveReceipt]:
        """Return all archives of one workspace whose meta exists and whose data has the size it says, recorded or not."""
        ...


class Archives(ArchiveReceipts, Protocol):
    async def ping(self) -> None: ...

    async def claim(self, installation_id: str) -> None:
        """Write this installation's id at the store's root. Raises Denied if another installation's id is there."""
        ...

    async def committed(self, archive_keys: Collection[str]) -> Mapping[str, bool]:
        """Return whether data and meta both exist, by key. Queries only these keys; never lists."""
        ...

    def list_places(self) -> AsyncIterator[ArchivePlace]:
        """Yield every place in the store. Only for the GC and doctor."""
        ...

    async def remove(self, place: ArchivePlace, fence: Fence) -> None:
        """Remove meta first, then the data and everything else, including incomplete uploads. Absent is success."""
        ...
