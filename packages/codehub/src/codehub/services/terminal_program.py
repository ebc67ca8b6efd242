"""Installs the browser's terminal program when a terminal is first opened: once, in the background."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from codehub.domain.errors import CodeHubError, NotFound
from codehub.ports.terminal_program import TerminalProgram


@dataclass(slots=True)
class TerminalProgramFiles:
    program: TerminalProgram | None
    _files: dict[str, bytes] = field(default_factory=dict)
    _install: asyncio.Task[None] | None = None
    _problem: str | None = None

    @property
    def version(self) -> str:
        return self.program.version if self.program is not None else ""

    @property
    def ready(self) -> bool:
        return self.program is not None and self.program.installed

    def begin(self) -> str | None:
        """Start the installation unless it is done or running. Returns why the last attempt failed, if it did."""
        if self.program is None:
            return "this CodeHub serves no web terminal"
        problem, self._problem = self._problem, None
        if not self.ready and self._install is None and problem is None:
            self._install = asyncio.create_task(self._run(self.program), name="install the terminal program")
        return problem

    async def _run(self, program: TerminalProgram) -> None:
        try:
            await asyncio.to_thread(program.ensure)
        except CodeHubError as error:
            self._problem = str(error)
        finally:
            self._install = None

    async def read(self, name: str) -> bytes:
        if not self.ready or self.program is None:
            raise NotFound("the terminal program is not installed")
        if not self._files:
            self._files.update(await asyncio.to_thread(self.program.files))
        if name not in self._files:
            raise NotFound(f"there is no file {name!r} in the terminal program")
        return self._files[name]

    async def close(self) -> None:
        """Leave a running installation to its thread; the next process uses the result."""
        if self._install is not None:
            self._install.cancel()
