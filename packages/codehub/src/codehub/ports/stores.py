"""A store of homes or archives that carries an id, by which a coordinator knows that it is the right one."""

from __future__ import annotations

from typing import Protocol


class IdentifiedStore(Protocol):
    @property
    def kind(self) -> str:
        """ "homes" or "archives"."""
        ...

    @property
    def place(self) -> str:
        """Where it is: a directory or a URL."""
        ...

    async def read_id(self) -> str | None:
        """None when it has none. Raises BackendDown when that cannot be told."""
        ...

    async def write_id(self, store_id: str) -> None: ...

    def expect(self, store_id: str) -> None:
        """From now on it is down while it does not carry this id."""
        ...

    def hold(self, why: str) -> None:
        """It is down, for this reason, until `expect` is called."""
        ...
