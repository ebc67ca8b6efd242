"""Drives sari with the official Python SDK, 1.x or 2.x. Runs inside that SDK's own environment, so it imports nothing
of ours.

    python sdk_driver.py MODE SARI HOME

MODE is `session` (`ClientSession`), or a mode of 2.x's `Client`. Prints what it saw as one JSON line. In between, the
daemon is stopped during a call that is then cancelled, and killed during another that must still be answered.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


def daemon_pid(home: str) -> int:
    registry = json.loads(Path(home, ".local/share/sari/server.json").read_text())
    return next(int(entry["pid"]) for entry in registry["daemons"].values() if not entry["draining"])


def paths(result: Any) -> list[str]:
    content: Any = getattr(result, "structured_content", None) or getattr(result, "structuredContent", None)
    return [match["path"] for match in content["matches"]]


@asynccontextmanager
async def session(sari: str) -> AsyncIterator[tuple[Any, Call]]:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    server = StdioServerParameters(command=sari, args=["mcp"], env=dict(os.environ))
    async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as client:
        await client.initialize()
        yield client, client.call_tool


@asynccontextmanager
async def modern(sari: str, mode: str) -> AsyncIterator[tuple[Any, Call]]:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    server = StdioServerParameters(command=sari, args=["mcp"], env=dict(os.environ))
    async with Client(stdio_client(server), mode=mode) as client:
        yield client, client.call_tool


async def drive(mode: str, sari: str, home: str) -> dict[str, Any]:
    opened = session(sari) if mode == "session" else modern(sari, mode)
    async with opened as (client, call):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        first = paths(await call("search", {"query": "needle"}))
        daemon = daemon_pid(home)
        os.kill(daemon, signal.SIGSTOP)
        with anyio.move_on_after(0.5) as cancelled:
            await call("search", {"query": "needle"})
        os.kill(daemon, signal.SIGCONT)
        after_cancel = paths(await call("search", {"query": "needle"}))
        os.kill(daemon, signal.SIGSTOP)
        again: list[str] = []

        async def survive() -> None:
            again.extend(paths(await call("search", {"query": "needle"})))

        async with anyio.create_task_group() as group:
            group.start_soon(survive)
            await anyio.sleep(0.1)
            os.kill(daemon, signal.SIGKILL)
        return {
            "tools": tools,
            "first": first,
            "cancelled": cancelled.cancelled_caught,
            "after_cancel": after_cancel,
            "after_kill": again,
            "restarted": daemon_pid(home) != daemon,
        }


if __name__ == "__main__":
    _mode, _sari, _home = sys.argv[1:4]
    print(json.dumps(anyio.run(drive, _mode, _sari, _home)))
