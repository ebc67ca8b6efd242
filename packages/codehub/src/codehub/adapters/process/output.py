"""An instance's output: what the supervisor has written, and what it continues to write."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from codehub.adapters.process.records import LOG

_PIECE = 64 << 10
_POLL_INTERVAL_S = 0.25


async def output(run_dir: Path, *, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
    """Yield output, oldest first. `tail` counts lines. Follows across rotation and restarts until the caller stops."""
    current = run_dir / LOG
    old = current.with_name(LOG + ".1")
    identity = _end(current)[1]
    skip = 0 if tail is None else await asyncio.to_thread(_before_tail, old, current, tail)
    with contextlib.suppress(FileNotFoundError), open(old, "rb") as file:  # kept open: a rotation replaces it
        before = os.fstat(file.fileno()).st_size
        file.seek(min(skip, before))
        skip = max(0, skip - before)
        while piece := file.read(_PIECE):
            yield piece
    position = skip
    while True:
        piece = b""
        size, now = _end(current)
        if now != identity:
            # Rotated: first yield the rest of the old file.
            if _end(old)[1] == identity and (piece := _from(old, position)):
                position += len(piece)
                yield piece
                continue
            position, identity = 0, now
        elif size > position:
            piece = _from(current, position)
            position += len(piece)
            yield piece
            continue
        elif not follow:
            return
        if not follow and now is None:
            return
        await asyncio.sleep(_POLL_INTERVAL_S if now == identity and not piece else 0)


def _before_tail(old: Path, current: Path, tail: int) -> int:
    """How many bytes of both files come before the last `tail` lines. The workspace chooses how many lines there are."""
    text = _all(old) + _all(current)
    end = len(text)
    if tail and text.endswith(b"\n"):
        end -= 1
    for _ in range(tail):
        end = text.rfind(b"\n", 0, end)
        if end < 0:
            return 0
    return end + 1 if tail else len(text)


def _end(path: Path) -> tuple[int, int | None]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, None
    return found.st_size, found.st_ino


def _from(path: Path, position: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(position)
            return file.read(_PIECE)
    except FileNotFoundError:
        return b""


def _all(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
