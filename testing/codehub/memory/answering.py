"""How a backend in memory answers: at once, never (it hangs), or with BackendDown (it is away)."""

from __future__ import annotations

import asyncio

from codehub.domain.errors import BackendDown


class Answering:
    def __init__(self, what: str) -> None:
        self._what = what
        self.away = False
        self._resumed: asyncio.Event | None = None

    def hang(self) -> None:
        """Accept calls and answer none."""
        if self._resumed is None:
            self._resumed = asyncio.Event()

    def resume(self) -> None:
        """Answer again, also the calls that still wait."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    async def answer(self) -> None:
        while self._resumed is not None:
            await self._resumed.wait()
        if self.away:
            raise BackendDown(f"{self._what} is away")
