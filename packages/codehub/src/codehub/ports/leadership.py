"""Leadership: at most one coordinator acts, and whatever an earlier one does late changes nothing (INV-11)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Lease(Protocol):
    """A term that was won. Small and immutable but for its deadline, which `hold` moves."""

    @property
    def epoch(self) -> int: ...

    @property
    def holder_id(self) -> str: ...

    def fence(self) -> None:
        """Raises FenceLost once the term's deadline has passed. Cheap; from any thread."""
        ...

    async def hold(self) -> None:
        """Keeps the lock for as long as it runs. Raises Deposed the moment it is, or may be, lost."""
        ...


class Election(Protocol):
    def campaign(self, holder_id: str) -> AbstractAsyncContextManager[Lease]:
        """Waits to be elected; gives the lock back at the end. Raises BackendDown when the database is away."""
        ...
