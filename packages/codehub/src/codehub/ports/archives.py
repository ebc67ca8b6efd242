"""The archive store as observation and GC see it: keys, never contents.

An archive is `{workspace_id}/{op_id}/home.tar.zst` with `home.tar.zst.meta` beside it as its commit marker. Methods raise
BackendDown when the store does not answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from codehub.ports.fence import Fence
from codehub.ports.homes import ArchiveReceipt


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    """Everything below one `{workspace_id}/{op_id}/`, whole or not."""

    workspace_id: str
    op_id: str
    archive_key: str


class ArchiveReceipts(Protocol):
    async def receipts(self, workspace_id: str) -> Sequence[ArchiveReceipt]:
        """Every archive of one workspace whose meta is there and whose data has the size it says, recorded or not."""
        ...


class Archives(ArchiveReceipts, Protocol):
    async def ping(self) -> None: ...

    async def claim(self, installation_id: str) -> None:
        """Write this installation's id at the store's root, or raise Denied when another's is there."""
        ...

    async def committed(self, archive_keys: Collection[str]) -> Mapping[str, bool]:
        """For each key, whether data and meta are both there. Asks for these keys only, never lists."""
        ...

    def list_places(self) -> AsyncIterator[ArchivePlace]:
        """Every place in the store. For the GC and doctor alone."""
        ...

    async def remove(self, place: ArchivePlace, fence: Fence) -> None:
        """Meta first, then the data and whatever else is there, half-done uploads included. Absent is success."""
        ...
