"""Publishes which workspaces are warm, in a file that the `sari` command's shell script reads without starting Python.

A line is `large PATH` or `small PATH`. In a large workspace the daemon answers sooner than ripgrep; in a small one
ripgrep has finished before Python has started. The file is only about time: whoever reads an outdated one gets a
complete answer all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator

from sari.daemon.log import fields, logger
from sari.daemon.workspaces import Workspaces

# Estimated from CPU times on two cores: from here on, ripgrep takes longer than Python's start and a call to the daemon.
_LARGE_FILES = 5_000
_INDEXING_POLL_S = 0.5


class WarmRoots:
    """The file of one daemon."""

    def __init__(self, workspaces: Workspaces, path: str) -> None:
        self._workspaces = workspaces
        self._path = path
        # Whether a root was large when it was last open. A large one counts as warm after it was closed.
        self._large: dict[str, bool] = {}
        self._written = b""

    async def run(self) -> None:
        """Keep the file current until cancelled, then remove it."""
        changed = self._workspaces.changed
        try:
            while True:
                changed.clear()
                self._write(os.fsencode("".join(self._lines())))
                indexing = any(slot.root not in self._large for slot in self._workspaces.slots())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_INDEXING_POLL_S if indexing else None):
                        await changed.wait()
        finally:
            with contextlib.suppress(OSError), open(self._path, "rb") as file:
                # A successor may have written it since.
                if file.read() == self._written:
                    os.unlink(self._path)

    def _lines(self) -> Iterator[str]:
        for slot in self._workspaces.slots():
            if slot.opened is not None and slot.opened.is_warm():
                files = slot.opened.status().get("files")
                self._large[slot.root] = isinstance(files, int) and files >= _LARGE_FILES
        for root, large in self._large.items():
            if self._workspaces.is_warm(root) and "\n" not in root:
                yield f"{'large' if large else 'small'} {root}\n"

    def _write(self, text: bytes) -> None:
        if text == self._written:
            return
        self._written = text
        fresh = f"{self._path}.{os.getpid()}"
        try:
            with open(fresh, "wb") as file:
                file.write(text)
            os.replace(fresh, self._path)
        except OSError as error:
            # For example a full disk. The command line then uses ripgrep.
            logger.warning("the list of warm workspaces could not be written %s", fields(error=str(error)))
            with contextlib.suppress(OSError):
                os.unlink(fresh)
