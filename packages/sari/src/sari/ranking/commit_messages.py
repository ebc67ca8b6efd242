"""Full-text search in the messages of a workspace's commits ("was this fixed before?").

One SQLite full-text table beside the index, filled on demand, newest commits first. Everything in it can be read from
git again, so a damaged or oversized file is deleted.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from sari.index.commits import LOG_FLAGS, Commit, parse_commits
from sari.index.git import ANY_SIZE, Repository
from sari.ranking.terms import count_terms

# Older commits can be found by `text` and by lines, which read the history itself.
MOST_COMMITS = 50_000
_MOST_KEPT = 3 * MOST_COMMITS
_BATCH = 500
_MOST_MESSAGE = 8_000
_MOST_PATHS = 200
_MOST_PATH_CHARACTERS = 8_000
_MOST_AUTHOR = 200
# 50,000 ordinary commits take a tenth of this. Without a file it is memory.
_MOST_BYTES = 512 << 20
_MOST_BYTES_IN_MEMORY = 64 << 20
_MOST_TERMS = 40
_MOST_FOUND = 2_000
_VERSION = 1
# The words refer to their commit by number and hold no text of their own.
_SCHEMA = """
CREATE TABLE "commit" (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, time_s INTEGER NOT NULL, author TEXT NOT NULL,
    message TEXT NOT NULL, paths TEXT NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5 (subject, body, paths, content='');
"""
# The subject says what the commit is about; paths are often the only place with the name of a module.
_FIND = """
SELECT c.id, c.time_s, c.author, c.message, c.paths FROM words JOIN "commit" c ON c.number = words.rowid
WHERE words MATCH ? ORDER BY bm25(words, 3.0, 1.0, 1.0), c.time_s DESC, c.id LIMIT ?
"""


class CommitMessages:
    """The commit messages of one workspace. Thread-safe."""

    def __init__(self, target: Path | None) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._head = ""
        self._ids: Collection[str] = ()
        # Whether older messages of this head were left out, because they take too much space.
        self.is_full = False

    def find(
        self, repository: Repository, head: str, question: str, stopped: Callable[[], bool], late: Callable[[], bool]
    ) -> tuple[list[Commit], bool]:
        """Return the commits whose messages answer a question, best first, and whether all messages were indexed.

        `stopped` ends the call with `git.Stopped`. Once `late` returns True, the messages indexed so far are searched.
        """
        with self._lock:
            try:
                return self._find(repository, head, question, stopped, late)
            except sqlite3.DatabaseError:
                self._throw_away()
                return self._find(repository, head, question, stopped, late)

    def _find(
        self, repository: Repository, head: str, question: str, stopped: Callable[[], bool], late: Callable[[], bool]
    ) -> tuple[list[Commit], bool]:
        db = self._open()
        complete = self._catch_up(db, repository, head, stopped, late)
        terms = sorted(count_terms(question))[:_MOST_TERMS]
        if not terms:
            return [], complete
        match = " OR ".join('"' + term.replace('"', "") + '"' for term in terms)
        rows = db.execute(_FIND, (match, _MOST_FOUND)).fetchall()
        found = [Commit(row[0], row[1], row[2], row[3], tuple(row[4].split("\0")) if row[4] else ()) for row in rows]
        return [commit for commit in found if commit.id in self._ids], complete

    def _catch_up(
        self,
        db: sqlite3.Connection,
        repository: Repository,
        head: str,
        stopped: Callable[[], bool],
        late: Callable[[], bool],
    ) -> bool:
        if self._head == head:
            return not self.is_full
        listing = b"".join(
            repository.stream(
                "rev-list",
                "--no-merges",
                f"-n{MOST_COMMITS}",
                head,
                *(["--", "."] if repository.prefix else []),
                stopped=stopped,
            )
        )
        ids = listing.decode().split()
        self._ids = frozenset(ids)
        known = {row[0] for row in db.execute('SELECT id FROM "commit"')}
        if len(known) > _MOST_KEPT:
            self._throw_away()
            db, known = self._open(), set()
        missing = [one for one in ids if one not in known]
        for batch in _batches(missing):
            if late():
                return False
            if self._is_too_large(db):
                if len(known) > len(missing):
                    # Most are of other branches, or of before a rebase. They make room.
                    self._throw_away()
                    return self._catch_up(self._open(), repository, head, stopped, late)
                self._head, self.is_full = head, True
                return False
            output = repository.stream(
                "log",
                "--no-walk=unsorted",
                "--stdin",
                "--name-only",
                "--relative",
                *LOG_FLAGS,
                stdin=batch,
                stopped=stopped,
                most_bytes=ANY_SIZE,
            )
            self._keep(db, parse_commits(output))
        self._head, self.is_full = head, False
        return True

    def _is_too_large(self, db: sqlite3.Connection) -> bool:
        pages, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        most = _MOST_BYTES_IN_MEMORY if self._target is None else _MOST_BYTES
        return bool(pages * size > most)

    def _keep(self, db: sqlite3.Connection, commits: Iterable[Commit]) -> None:
        db.execute("BEGIN")
        try:
            for commit in commits:
                message = commit.message[:_MOST_MESSAGE]
                paths = "\0".join(commit.paths[:_MOST_PATHS])[:_MOST_PATH_CHARACTERS].split("\0")
                inserted = db.execute(
                    'INSERT OR IGNORE INTO "commit" (id, time_s, author, message, paths) VALUES (?, ?, ?, ?, ?)',
                    (commit.id, commit.time_s, commit.author[:_MOST_AUTHOR], message, "\0".join(paths)),
                )
                if inserted.rowcount == 1:
                    subject, _, body = message.partition("\n")
                    words = (_words(subject), _words(body), _words("\n".join(paths)))
                    db.execute(
                        "INSERT INTO words (rowid, subject, body, paths) VALUES (?, ?, ?, ?)",
                        (inserted.lastrowid, *words),
                    )
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            where = ":memory:" if self._target is None else os.fspath(self._target)
            db = sqlite3.connect(where, check_same_thread=False, isolation_level=None)
            self._db = db
            if self._target is not None:
                os.chmod(self._target, 0o600)
            db.execute("PRAGMA journal_mode = WAL")
            # Data lost in a crash is read from git again.
            db.execute("PRAGMA synchronous = OFF")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError("another version")
            if version == 0:
                db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        return self._db

    def _throw_away(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db, self._head, self.is_full = None, "", False
        if self._target is not None:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(OSError):
                    os.unlink(f"{self._target}{suffix}")

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(ids), _BATCH):
        yield ids[at : at + _BATCH]


def _words(text: str) -> str:
    return " ".join(count_terms(text).elements())
