"""The real command against a real listener."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest_asyncio

from testing.codehub.dashboard import PASSWORD, DashboardServer, dashboard, stage

__all__ = ["PASSWORD", "dashboard", "stage"]


_CODEHUB = str(Path(sys.executable).with_name("codehub"))


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Command:
    """`codehub …` with a home of its own."""

    home: Path
    server: DashboardServer

    async def begin(
        self, *words: str, program: tuple[str, ...] = (_CODEHUB,), **environment: str
    ) -> asyncio.subprocess.Process:
        """The command, under way; whoever begins it waits for its end."""
        return await asyncio.create_subprocess_exec(
            *program,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                "HOME": str(self.home),
                "PATH": os.environ["PATH"],
                "CODEHUB_SERVER": self.server.url,
                "CODEHUB_DATA_DIR": str(self.home / "data"),
                "COLUMNS": "200",
                **environment,
            },
        )

    async def end(self, process: asyncio.subprocess.Process, stdin: str = "") -> Result:
        """What it says from here on, and its exit code."""
        try:
            async with asyncio.timeout(120):
                out, err = await process.communicate(stdin.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Result(process.returncode or 0, out.decode(), err.decode())

    async def __call__(self, *words: str, stdin: str = "", **environment: str) -> Result:
        return await self.end(await self.begin(*words, program=(_CODEHUB,), **environment), stdin)

    async def ok(self, *words: str, **more: str) -> str:
        done = await self(*words, **more)
        assert done.code == 0, (words, done)
        return done.out


@pytest_asyncio.fixture
async def codehub(dashboard: DashboardServer, tmp_path: Path) -> Command:
    """Not signed in yet."""
    return Command(tmp_path, dashboard)


@pytest_asyncio.fixture
async def signed_in(codehub: Command) -> Command:
    await codehub.ok("login", "-u", "admin", "--password-stdin", stdin=f"{PASSWORD}\n")
    return codehub
