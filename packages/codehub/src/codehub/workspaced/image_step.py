"""The step that waits for the image of devcontainer.json. CodeHub prepares it and restarts the workspace with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Callable

from .link import Link, LinkError

_KEPT_OUTPUT = 256 << 10
# Longer than CodeHub lets a build take, whatever it is configured to: CodeHub decides.
_TIMEOUT_S = 7 * 86400.0
_RESTART_WITHIN_S = 60.0


class ImageStep:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._moved = asyncio.Event()
        self.output = ""
        self.progress: dict[str, object] = {}

    def take(self, message: dict[str, object]) -> None:
        """Handle what CodeHub reports while it prepares the image."""
        self.output = (self.output + str(message.get("output") or ""))[-_KEPT_OUTPUT:]
        progress = message.get("progress")
        if isinstance(progress, dict):
            self.progress = {str(name): value for name, value in progress.items()}
        self._moved.set()

    async def prepare(
        self, request: dict[str, object], report: Callable[[], Awaitable[None]], keep_output: Callable[[], None]
    ) -> str:
        """Return why there is no image; empty once the workspace runs with it. The restart ends this process."""
        self.output, self.progress = "", {}
        while True:
            asking = asyncio.ensure_future(self._link.ask("image", request, _TIMEOUT_S))
            try:
                await self._follow(asking, report)
                answer = await asking
            except LinkError as error:
                return str(error)
            finally:
                asking.cancel()
                keep_output()
            if not answer.get("restart"):
                return ""
            self.progress = {"step": "Restarting the workspace with it", "percent": 100}
            await report()
            await asyncio.sleep(_RESTART_WITHIN_S)  # then ask again, in case that the restart was lost

    async def _follow(self, asking: asyncio.Future[dict[str, object]], report: Callable[[], Awaitable[None]]) -> None:
        while not asking.done():
            self._moved.clear()
            moved = asyncio.ensure_future(self._moved.wait())
            either: list[asyncio.Future[Any]] = [asking, moved]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            moved.cancel()
            await report()
