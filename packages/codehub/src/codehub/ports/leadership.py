"""Leadership: at most one coordinator acts, and late actions of an earlier one have no effect (INV-11)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Lease(Protocol):
    """A term that was won. Small and immutable except for its deadline, which `hold` extends."""

    @property
    def epoch(self) -> int: ...

    @property
    def holder_id(self) -> str: ...

    def fence(self) -> None:
        """Raise FenceLost once the term's deadline has passed. Cheap; from any thread."""
        ...

    async def hold(self) -> None:
        """Keep the lock while running. Raises Deposed as soon as it is, or may be, lost."""
        ...


class Election(Protocol):
    def campaign(self, holder_id: str) -> AbstractAsyncContextManager[Lease]:
        """Wait to be elected, and release the lock at the end. Raises BackendDown if the database is unavailable."""
        ...
