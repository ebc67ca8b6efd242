"""A store of homes or archives that carries an id, by which a coordinator recognizes the right one."""

from __future__ import annotations

from typing import Protocol


class IdentifiedStore(Protocol):
    @property
    def kind(self) -> str:
        """ "homes" or "archives"."""
        ...

    @property
    def place(self) -> str:
        """The location: a directory or a URL."""
        ...

    @property
    def takes_new(self) -> bool:
        """Whether data of new workspaces is kept here. Otherwise it matters only as long as it holds some of older ones."""
        ...

    async def read_id(self) -> str | None:
        """Return the id, or None if there is none. Raises BackendDown if that is unknown."""
        ...

    async def write_id(self, store_id: str) -> None: ...

    def expect(self, store_id: str) -> None:
        """Treat the store as down from now on while it does not carry this id."""
        ...

    def hold(self, why: str) -> None:
        """Treat the store as down, for this reason, until `expect` is called."""
        ...
