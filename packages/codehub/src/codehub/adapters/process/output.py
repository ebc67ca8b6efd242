"""An instance's output: what the supervisor has written, and what it continues to write."""

from __future__ import annotations

import asyncio
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
    if tail is not None:
        text = b"".join([_all(old), _all(current)])
        lines = text.splitlines(keepends=True)
        kept = b"".join(lines[len(lines) - min(tail, len(lines)) :])
        if kept:
            yield kept
        position, identity = _end(current)
    else:
        if rest := _all(old):
            yield rest
        position, identity = 0, _end(current)[1]
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
