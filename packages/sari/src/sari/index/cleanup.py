"""Removes the indexes of deleted workspaces. Every index can be rebuilt."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from sari.index.store import lock_file, root_of

# A workspace whose parent is also missing may be on a disk that is not mounted now.
_UNMOUNTED_KEPT_S = 30 * 86_400.0
_REMOVED = ".removed"


def remove_stale_indexes(data_dir: Path) -> list[str]:
    """Remove unusable indexes and return their roots. Can be killed at any time and run again."""
    removed: list[str] = []
    try:
        folders = sorted((data_dir / "index").iterdir())
    except OSError:
        return removed
    for folder in folders:
        if folder.name.endswith(_REMOVED):
            shutil.rmtree(folder, ignore_errors=True)
            continue
        root = root_of(folder)
        if root is not None and _is_stale(folder, root) and _remove(folder):
            removed.append(root)
    return removed


def _is_stale(folder: Path, root: str) -> bool:
    if os.path.isdir(root):
        return False
    if os.path.isdir(os.path.dirname(root)):
        return True
    try:
        return time.time() - folder.stat().st_mtime > _UNMOUNTED_KEPT_S
    except OSError:
        return False


def _remove(folder: Path) -> bool:
    """Remove an index unless a daemon has it open."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        if not lock_file(lock):
            return False
        gone = folder.with_name(folder.name + _REMOVED)
        with contextlib.suppress(OSError):
            os.rename(folder, gone)
            shutil.rmtree(gone, ignore_errors=True)
            return True
        return False
    finally:
        os.close(lock)
