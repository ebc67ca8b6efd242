"""The term index on disk: its folder, and the list of its segments.

The daemon that may write the workspace's index stores it beside that; any other uses a temporary folder. A segment
belongs to the index once the manifest names it, so a crash in between leaves only a file to remove.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from sari.ranking.term_segment import VERSION, DamagedSegment, TermSegment

_SUFFIX = ".terms"


class SegmentStore:
    """The segments of one workspace."""

    def __init__(self, folder: Path | None) -> None:
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="sari-terms-")) if folder is None else folder
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._manifest = self.folder / "manifest.json"

    def new_segment(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self.folder / f"{uuid.uuid4().hex}{_SUFFIX}"

    def load(self) -> list[TermSegment]:
        """Return the intact segments of the manifest, oldest first, and remove files that it does not name."""
        names = self._names()
        segments: list[TermSegment] = []
        for name in names:
            with contextlib.suppress(DamagedSegment, OSError):
                segments.append(TermSegment(self.folder / name))
        self.sweep(segments)
        return segments

    def _names(self) -> list[str]:
        try:
            manifest = json.loads(self._manifest.read_bytes())
            if manifest["version"] != VERSION:
                return []
            return [name for name in manifest["segments"] if isinstance(name, str) and "/" not in name]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def save(self, segments: Sequence[TermSegment]) -> None:
        """Make these segments the index."""
        temporary = self.folder / "manifest.tmp"
        temporary.write_text(
            json.dumps({"version": VERSION, "segments": [segment.location.name for segment in segments]})
        )
        os.replace(temporary, self._manifest)
        self.sweep(segments)

    def sweep(self, segments: Sequence[TermSegment]) -> None:
        keep = {segment.location.name for segment in segments}
        for entry in os.scandir(self.folder):
            if entry.name.endswith((_SUFFIX, ".tmp")) and entry.name not in keep:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)

    def close(self) -> None:
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
