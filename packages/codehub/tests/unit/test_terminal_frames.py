"""Terminals of one workspace whose viewers read nothing: how much of their output is held in memory."""

from __future__ import annotations

import asyncio
from typing import cast

import httpcore
from fastapi import WebSocket

from codehub.adapters.workspaced_client import ByteStream, _Budget
from codehub.api.terminals import _to_client

_FRAME = b"S" + (1 << 20).to_bytes(4, "big") + bytes(1 << 20)


class Workspace(httpcore.AsyncNetworkStream):
    """Sends a screen of a megabyte again and again."""

    def __init__(self) -> None:
        self.sent = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        await asyncio.sleep(0)
        at = self.sent % len(_FRAME)
        data = _FRAME[at : at + max_bytes]
        self.sent += len(data)
        return data


class Viewer:
    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.shown = asyncio.Event()

    async def send_bytes(self, message: bytes) -> None:
        assert len(message) == 1 + (1 << 20)
        await self.reads.wait()
        self.shown.set()


async def test_large_screens_are_held_for_four_viewers_of_a_workspace_at_a_time() -> None:
    budget = _Budget()
    workspaces, viewers = [Workspace() for _ in range(20)], [Viewer() for _ in range(20)]
    showing = [
        asyncio.create_task(_to_client(cast(WebSocket, viewer), ByteStream(workspace, budget)))
        for workspace, viewer in zip(workspaces, viewers, strict=True)
    ]
    for _ in range(200):
        await asyncio.sleep(0)
    assert sum(workspace.sent >= len(_FRAME) for workspace in workspaces) == 4
    for viewer in viewers:
        viewer.reads.set()
    async with asyncio.timeout(30):
        await asyncio.gather(*(viewer.shown.wait() for viewer in viewers))
    for task in showing:
        task.cancel()
    await asyncio.gather(*showing, return_exceptions=True)
