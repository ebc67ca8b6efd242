"""Records the changes to each file so that they can be undone exactly: the bytes before, and the changed text.

Stored beside sari's registry (`install/`), never beside the client's file, so a project's tree stays clean. Readable by
the owner only, because clients keep secrets in these files.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from sari.install.errors import InstallError

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """One changed file. `before` is the path of the backup, or None if there was no file."""

    path: str
    client: str
    after_sha256: str
    before: str | None
    # The one part of the text that differs. Replacing `new` with `old` undoes the change.
    old: str
    new: str
    made_folders: tuple[str, ...]
    format: int = _FORMAT


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def difference(before: str, after: str) -> tuple[str, str]:
    """Return the differing middle of two texts: `(old, new)`."""
    head = _alike(before, after)
    tail = _alike(before[head:][::-1], after[head:][::-1])
    return before[head : len(before) - tail], after[head : len(after) - tail]


def _alike(left: str, right: str) -> int:
    """Return the length of the common prefix."""
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def _read(file: Path) -> Receipt | None:
    """Read a receipt. Without one (lost or damaged), undoing is less exact: the entry is removed by its structure."""
    try:
        found = json.loads(file.read_bytes())
        receipt = Receipt(**{**found, "made_folders": tuple(found["made_folders"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return receipt if receipt.format == _FORMAT else None


@dataclass(frozen=True, slots=True)
class Receipts:
    """The folder of receipts and backups."""

    folder: Path

    def load(self, path: Path) -> Receipt | None:
        receipt = _read(self._file(path))
        return receipt if receipt is not None and receipt.path == str(path) else None

    def all(self) -> list[Receipt]:
        """Return all installations that have not been undone."""
        found = (_read(file) for file in sorted(self.folder.glob("*.json")))
        return [receipt for receipt in found if receipt is not None]

    def save(self, receipt: Receipt) -> None:
        target = self._file(Path(receipt.path))
        self._write(target, json.dumps(asdict(receipt), ensure_ascii=False, indent=1).encode())

    def forget(self, path: Path) -> None:
        self._file(path).unlink(missing_ok=True)

    def back_up(self, path: Path, data: bytes, now: datetime) -> Path:
        """Keep a dated copy. A second one within the same second gets a number."""
        stamp = now.strftime("%Y-%m-%dT%H%M%SZ")
        stem = f"{digest(str(path).encode())[:8]}-{path.name}"
        for number in range(1000):
            target = self.folder / "backups" / f"{stem}.{stamp}{f'.{number}' if number else ''}"
            if not target.exists():
                self._write(target, data)
                return target
        raise FileExistsError(f"more than a thousand backups of {path} in one second")

    def _file(self, path: Path) -> Path:
        return self.folder / f"{digest(str(path).encode())[:32]}.json"

    def _write(self, target: Path, data: bytes) -> None:
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except OSError as error:
            raise InstallError(
                f"a backup could not be kept in {self.folder} ({error.strerror}), so nothing was changed. "
                "Make that folder writable and try again."
            ) from error
