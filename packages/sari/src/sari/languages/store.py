"""The symbols of a workspace on disk: filled in the background and on demand, checked against the files when read.

One SQLite file beside the index. Everything in it can be parsed again, so a damaged file is deleted. If it cannot be
written (a full disk), symbols are kept in memory from then on.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sari.languages.parse import Symbol
from sari.languages.read import Parsed

# Increased whenever the parser's results change, so that all files are parsed again.
_VERSION = 7
# The indexes are for lookups by file, by name in either case, and by the types that a type extends.
_SCHEMA = """
CREATE TABLE file (id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, stamp INTEGER NOT NULL, failed INTEGER NOT NULL);
CREATE TABLE symbol (
    file INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, line INTEGER NOT NULL, end_line INTEGER NOT NULL,
    container TEXT, supers TEXT NOT NULL
);
CREATE INDEX symbol_file ON symbol (file);
CREATE INDEX symbol_name ON symbol (name COLLATE NOCASE);
CREATE INDEX symbol_supers ON symbol (supers) WHERE supers <> '';
"""


# Symbols whose name contains a pattern: exact matches first, then those that begin with it, in either case of letters.
_NAMED = r"""
    SELECT f.path, s.name, s.kind, s.line, s.end_line, s.container, s.supers
    FROM symbol s JOIN file f ON f.id = s.file
    WHERE s.name LIKE ? ESCAPE '\'
    ORDER BY s.name <> ?, s.name NOT LIKE ? ESCAPE '\', s.name NOT LIKE ? ESCAPE '\', length(s.name), f.path, s.line
    LIMIT ?
"""
# Symbols of exactly this name. The first comparison is there for the index.
_EXACTLY = """
    SELECT f.path, s.name, s.kind, s.line, s.end_line, s.container, s.supers
    FROM symbol s JOIN file f ON f.id = s.file
    WHERE s.name = ? COLLATE NOCASE AND s.name = ? LIMIT ?
"""
# Types that name another one among those that they extend.
_EXTENDING = """
    SELECT f.path, s.name, s.kind, s.line, s.end_line, s.container, s.supers
    FROM symbol s JOIN file f ON f.id = s.file
    WHERE s.supers <> '' AND ' ' || s.supers || ' ' LIKE ? ORDER BY f.path, s.line LIMIT ?
"""
# The symbols of one file, outer ones before those that they contain.
_OF_FILE = """
    SELECT f.path, s.name, s.kind, s.line, s.end_line, s.container, s.supers
    FROM symbol s JOIN file f ON f.id = s.file
    WHERE f.path = ? ORDER BY s.line, s.end_line DESC
"""


@dataclass(frozen=True, slots=True)
class Placed:
    """A symbol and its file."""

    path: bytes
    symbol: Symbol


class SymbolStore:
    """The symbols of many files. Thread-safe."""

    def __init__(self, target: Path | None) -> None:
        self._target = target
        self._lock = threading.Lock()
        self.stamps: dict[bytes, int] = {}
        # Files that could not be parsed.
        self.failed: set[bytes] = set()
        self._db = self._opened()

    def _connect(self) -> sqlite3.Connection:
        """Open the file. Raises `sqlite3.Error` or `OSError`."""
        where = ":memory:" if self._target is None else os.fspath(self._target)
        db = sqlite3.connect(where, check_same_thread=False, isolation_level=None)
        if self._target is not None:
            os.chmod(self._target, 0o600)
        return db

    def _opened(self) -> sqlite3.Connection:
        for _ in range(2):
            with contextlib.suppress(sqlite3.Error, OSError):
                return self._prepared()
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(OSError):
                    os.unlink(f"{self._target}{suffix}")
        self._target = None
        return self._prepared()

    def _prepared(self) -> sqlite3.Connection:
        db = self._connect()
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        # Data lost in a crash is parsed again, so there is no need to wait for the disk.
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            db.executescript(_SCHEMA)
            db.execute(f"PRAGMA user_version = {_VERSION}")
        elif version != _VERSION:
            raise sqlite3.DatabaseError("another version")
        self.stamps = {bytes(path): stamp for path, stamp in db.execute("SELECT path, stamp FROM file")}
        self.failed = {bytes(path) for (path,) in db.execute("SELECT path FROM file WHERE failed")}

    def put(self, parsed: Iterable[tuple[bytes, Parsed | None]]) -> None:
        """Store parsed files; None removes a file."""
        entries = list(parsed)
        with self._lock:
            try:
                self._put(entries)
            except sqlite3.OperationalError:
                self._continue_in_memory()
                self._put(entries)

    def _put(self, entries: list[tuple[bytes, Parsed | None]]) -> None:
        self._db.execute("BEGIN")
        try:
            for path, found in entries:
                self._forget(path)
                if found is not None:
                    self._keep(path, found)
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                # A full disk may have ended the transaction.
                self._db.execute("ROLLBACK")
            raise

    def _continue_in_memory(self) -> None:
        self._target = None
        memory = self._connect()
        with contextlib.suppress(sqlite3.Error):
            self._db.backup(memory)
        self._db.close()
        self._db = memory
        self._prepare(memory)

    def _forget(self, path: bytes) -> None:
        self.failed.discard(path)
        if self.stamps.pop(path, None) is not None:
            row = self._db.execute("SELECT id FROM file WHERE path = ?", (path,)).fetchone()
            if row:
                self._db.execute("DELETE FROM symbol WHERE file = ?", row)
                self._db.execute("DELETE FROM file WHERE id = ?", row)

    def _keep(self, path: bytes, found: Parsed) -> None:
        cursor = self._db.execute(
            "INSERT INTO file (path, stamp, failed) VALUES (?, ?, ?)", (path, found.stamp, found.failed)
        )
        rows = [
            (cursor.lastrowid, s.name, s.kind, s.line, s.end_line, s.container, " ".join(s.supers))
            for s in found.symbols
        ]
        self._db.executemany("INSERT INTO symbol VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self.stamps[path] = found.stamp
        if found.failed:
            self.failed.add(path)

    def named(self, part: str, most: int) -> list[Placed]:
        """Return symbols whose name contains `part`, exact matches first, then those that begin with it."""
        pattern = part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return self._select(_NAMED, (f"%{pattern}%", part, pattern, f"{pattern}%", most))

    def exactly(self, name: str, most: int) -> list[Placed]:
        return self._select(_EXACTLY, (name, name, most))

    def extending(self, name: str, most: int) -> list[Placed]:
        """Return types that extend this one by name."""
        return self._select(_EXTENDING, (f"% {name} %", most))

    def of_file(self, path: bytes) -> list[Placed]:
        return self._select(_OF_FILE, (path,))

    def _select(self, statement: str, values: tuple[object, ...]) -> list[Placed]:
        with self._lock:
            rows = self._db.execute(statement, values).fetchall()
        return [
            Placed(bytes(path), Symbol(name, kind, line, end, container, tuple(supers.split())))
            for path, name, kind, line, end, container, supers in rows
        ]

    def close(self) -> None:
        with self._lock:
            self._db.close()
