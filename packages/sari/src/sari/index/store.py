"""The index on disk: its folder, its lock, and the list of its segments.

Stored outside the workspace, one folder per root. The lock is held while an index is open for writing and freed by the
kernel when its process dies, so two daemons never write the same index. A process without the lock only reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
import uuid
from pathlib import Path

from sari.index.segment import Damaged, Segment

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

VERSION = 1
_ROOT_FILE = "root"


def folder_of(root: Path, data_dir: Path) -> Path:
    """Return the index folder of a root."""
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
    return data_dir / "index" / digest


def root_of(folder: Path) -> str | None:
    """Return the root that an index folder belongs to; None if it is unknown."""
    with contextlib.suppress(OSError):
        return os.fsdecode((folder / _ROOT_FILE).read_bytes()) or None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((folder / "manifest.json").read_bytes())["root"])
    return None


def persisted_bytes(root: Path, data_dir: Path) -> int:
    """Return the size of the persisted index of a root; 0 if there is none."""
    try:
        with os.scandir(folder_of(root, data_dir)) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".seg"))
    except OSError:
        return 0


class Store:
    """The files of one index."""

    def __init__(self, root: Path, data_dir: Path) -> None:
        self.folder = folder_of(root, data_dir)
        self._root = str(root)
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Used to find indexes of deleted workspaces. The manifest is only written with the first segment.
            if not (self.folder / _ROOT_FILE).exists():
                (self.folder / _ROOT_FILE).write_bytes(os.fsencode(root))
        self._manifest = self.folder / "manifest.json"
        self._lock_fd: int | None = None
        self._locking = threading.Lock()

    @property
    def writer(self) -> bool:
        return self._lock_fd is not None

    def try_lock(self) -> bool:
        """Become the writer if there is none and the folder can be written."""
        with self._locking:
            return self._lock_fd is not None or self._lock()

    def _lock(self) -> bool:
        try:
            fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        if not lock_file(fd):
            os.close(fd)
            return False
        self._lock_fd = fd
        return True

    def is_persisted(self) -> bool:
        """Whether a persisted index exists."""
        return bool(self._names())

    def new_segment(self) -> Path:
        return self.folder / f"{uuid.uuid4().hex}.seg"

    def load(self) -> tuple[list[Segment], list[str]]:
        """Return the intact segments of the manifest, oldest first, and the names of damaged ones."""
        segments: list[Segment] = []
        damaged: list[str] = []
        for name in self._names():
            try:
                segments.append(Segment(self.folder / name))
            except (Damaged, OSError):
                damaged.append(name)
        return segments, damaged

    def _names(self) -> list[str]:
        try:
            manifest = json.loads(self._manifest.read_bytes())
            if manifest["version"] != VERSION or manifest["root"] != self._root:
                return []
            return [name for name in manifest["segments"] if isinstance(name, str) and "/" not in name]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def save(self, segments: list[Segment]) -> None:
        """Make these segments the index and remove files that are no longer part of it. Writer only."""
        names = [segment.path.name for segment in segments]
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self.folder / "manifest.tmp"
        temporary.write_text(json.dumps({"version": VERSION, "root": self._root, "segments": names}))
        os.replace(temporary, self._manifest)

    def sweep(self, segments: list[Segment]) -> None:
        """Remove files that no segment list names: leftovers of a crash or a merge. Writer only."""
        keep = {segment.path.name for segment in segments}
        for entry in os.scandir(self.folder):
            if entry.name.endswith((".seg", ".tmp")) and entry.name not in keep:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)

    def close(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None


def lock_file(fd: int) -> bool:
    """Lock an open file if it is free. The kernel releases the lock with the last descriptor."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
