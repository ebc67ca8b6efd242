"""One immutable part of the term index on disk: some files, and for each term the files that contain it, by field.

A segment is written under a temporary name and then renamed. Everything in it can be read from the workspace again, so
a damaged one is dropped. Knows neither which segments make up an index, nor scores.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

VERSION = 2
# Ids within a segment are 16 bit.
MAX_FILES = 60_000
_MAX_COUNT = 255
# The rows of recent queries are cached: an agent often queries the same things again.
_KEPT_ROWS = 256
_KEPT_BYTES = 4 << 20
# While a segment is written, each term of a field takes about this much memory, and three bytes for each file.
_TERM_BYTES = 300
_MOST_WRITTEN_BYTES = 512 << 20
# One row per file, and for each term the files that contain it, by field.
_SCHEMA = """
CREATE TABLE file (id INTEGER PRIMARY KEY, path BLOB NOT NULL, stamp INTEGER NOT NULL,
    body INTEGER NOT NULL, defs INTEGER NOT NULL);
CREATE TABLE term (term TEXT PRIMARY KEY, body BLOB, defs BLOB, path BLOB, name BLOB) WITHOUT ROWID;
"""
FIELDS = ("body", "defs", "path", "name")


class DamagedSegment(Exception):
    """Raised when the file is not a complete segment of this version."""


@dataclass(frozen=True, slots=True)
class FileTerms:
    """The index's data for one file: how often each term occurs in each field."""

    path: bytes
    stamp: int
    fields: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Posting:
    """The files that contain a term in one field, by ascending id, with the number of occurrences."""

    ids: array[int]
    counts: bytes


Row = Mapping[str, Posting]
_NO_ROW: Row = {}


def write_segment(target: Path, files: Iterable[FileTerms], most_bytes: int = _MOST_WRITTEN_BYTES) -> int:
    """Write files as one segment. Returns how many it contains: it takes no further ones when those before them need this
    much memory.
    """
    rows: list[tuple[int, bytes, int, int, int]] = []
    ids: dict[str, defaultdict[str, array[int]]] = {f: defaultdict(lambda: array("H")) for f in FIELDS}
    counts: dict[str, defaultdict[str, bytearray]] = {f: defaultdict(bytearray) for f in FIELDS}
    used = 0
    for number, file in enumerate(files):
        for field in FIELDS:
            field_ids, field_counts = ids[field], counts[field]
            used -= _TERM_BYTES * len(field_ids)
            for term, count in file.fields.get(field, {}).items():
                field_ids[term].append(number)
                field_counts[term].append(min(count, _MAX_COUNT))
            used += _TERM_BYTES * len(field_ids) + 3 * len(file.fields.get(field, {}))
        body, defs = (sum(file.fields.get(field, {}).values()) for field in ("body", "defs"))
        rows.append((number, file.path, file.stamp, body, defs))
        if used > most_bytes:
            break
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    db = sqlite3.connect(temporary, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA page_size=8192")
        db.executescript(_SCHEMA)
        db.execute("BEGIN")
        db.execute(f"PRAGMA user_version={VERSION}")
        db.executemany("INSERT INTO file VALUES (?, ?, ?, ?, ?)", rows)
        every = sorted(set().union(*(ids[field] for field in FIELDS)))
        db.executemany(
            "INSERT INTO term VALUES (?, ?, ?, ?, ?)",
            ((term, *(_blob(ids[field].get(term), counts[field].get(term)) for field in FIELDS)) for term in every),
        )
        db.execute("COMMIT")
    finally:
        db.close()
    os.chmod(temporary, 0o600)
    os.replace(temporary, target)
    return len(rows)


def _blob(ids: array[int] | None, counts: bytearray | None) -> bytes | None:
    if not ids or counts is None:
        return None
    if sys.byteorder == "big":
        ids = array("H", ids)
        ids.byteswap()
    return ids.tobytes() + counts


def _posting(blob: bytes) -> Posting:
    size = len(blob) // 3
    ids: array[int] = array("H")
    ids.frombytes(blob[: 2 * size])
    if sys.byteorder == "big":
        ids.byteswap()
    return Posting(ids, blob[2 * size :])


def _size(row: Row) -> int:
    return 200 + sum(3 * len(posting.ids) + 200 for posting in row.values())


class TermSegment:
    """A segment opened for reading. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.location = path
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Row] = OrderedDict()
        self._kept_bytes = 0
        try:
            self._db = sqlite3.connect(
                f"{path.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False, isolation_level=None
            )
        except sqlite3.Error as error:
            raise DamagedSegment(f"{path}: {error}") from error
        try:
            self._load()
        except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
            self._db.close()
            raise DamagedSegment(f"{path}: {error}") from error
        self.bytes = path.stat().st_size

    def _load(self) -> None:
        if self._db.execute("PRAGMA user_version").fetchone() != (VERSION,):
            raise ValueError("another version")
        self.paths: list[bytes] = []
        self.stamps: array[int] = array("q")
        self.body_lengths: array[int] = array("Q")
        self.defs_lengths: array[int] = array("Q")
        for _, path, stamp, body, defs in self._db.execute("SELECT * FROM file ORDER BY id"):
            self.paths.append(bytes(path))
            self.stamps.append(stamp)
            self.body_lengths.append(body)
            self.defs_lengths.append(defs)

    def row(self, term: str) -> Row:
        """Return the postings of a term, by field."""
        with self._lock:
            kept = self._kept.get(term)
            if kept is not None:
                self._kept.move_to_end(term)
                return kept
            try:
                found = self._db.execute("SELECT body, defs, path, name FROM term WHERE term = ?", (term,)).fetchone()
            except sqlite3.Error as error:
                raise DamagedSegment(f"{self.location}: {error}") from error
            row = (
                _NO_ROW
                if found is None
                else {field: _posting(blob) for field, blob in zip(FIELDS, found, strict=True) if blob is not None}
            )
            self._kept[term] = row
            self._kept_bytes += _size(row)
            while len(self._kept) > _KEPT_ROWS or (self._kept_bytes > _KEPT_BYTES and self._kept):
                self._kept_bytes -= _size(self._kept.popitem(last=False)[1])
            return row

    def check(self) -> None:
        """Raise DamagedSegment unless every page can be read."""
        with self._lock:
            try:
                (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            except sqlite3.Error as error:
                raise DamagedSegment(f"{self.location}: {error}") from error
        if found != "ok":
            raise DamagedSegment(f"{self.location}: {found}")

    def close(self) -> None:
        with self._lock:
            self._db.close()
