"""Keeps the symbols of a workspace: parsed in the background by one worker process, and at once where a query needs them.

Asks the index which files there are and which hold a name; a symbol handed out was in its file when the query came.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from sari.index import trigram_query
from sari.index.workspace_index import WorkspaceIndex
from sari.languages import catalog
from sari.languages.parse import Symbol
from sari.languages.read import Parsed, stamp_of, symbols_of
from sari.languages.store import Placed, SymbolStore

_CHUNK = 100
# How long a query parses files itself before it answers with what there is, and says so.
_TIMEOUT_S = 4.0
_PAUSE_S = 1.0


class SymbolIndex:
    """The symbols of one index's files."""

    def __init__(self, index: WorkspaceIndex) -> None:
        self._index = index
        self._root = os.fsencode(index.root)
        self._stop = threading.Event()
        self._worker: subprocess.Popen[bytes] | None = None
        # Who may not write the index may not write its symbols either.
        self._store = SymbolStore(index.store.folder / "symbols.db" if index.store.try_lock() else None)
        self._files = 0
        self._done_for = -2
        self._thread = threading.Thread(target=self._run, name="sari-symbols", daemon=True)
        self._thread.start()

    @property
    def complete(self) -> bool:
        """Everything was parsed, as of the last change."""
        return self._done_for == self._index.change()

    def status(self) -> dict[str, object]:
        return {"files": self._files, "parsed": min(len(self._store.stamps), self._files)}

    def named(self, part: str, most: int) -> tuple[list[Placed], bool]:
        """Symbols whose name holds `part`; and whether all files were looked at."""
        complete = self._prepare(part)
        return self._true(lambda: self._store.named(part, most)), complete

    def exactly(self, name: str, most: int = 500) -> tuple[list[Placed], bool]:
        complete = self._prepare(name)
        return self._true(lambda: self._store.exactly(name, most)), complete

    def extending(self, name: str, most: int = 500) -> tuple[list[Placed], bool]:
        complete = self._prepare(name)
        return self._true(lambda: self._store.extending(name, most)), complete

    def of_file(self, path: bytes) -> list[Symbol] | None:
        """A file's symbols, parsed now if need be; None when it cannot be parsed."""
        if self._current(path):
            return [placed.symbol for placed in self._store.of_file(path)]
        parsed = symbols_of(self._root, path)
        if parsed is not None:
            self._store.put([(path, parsed)])
        return None if parsed is None else parsed.symbols

    def known_names(self, path: bytes) -> list[str] | None:
        """The names a file defines, if it was parsed as it is now; never parses."""
        return [placed.symbol.name for placed in self._store.of_file(path)] if self._current(path) else None

    def top_level(self, paths: Sequence[bytes], kinds: Collection[str], timeout_s: float) -> dict[bytes, list[str]]:
        """What each of these files defines at its top. Those not parsed yet are parsed now, within `timeout_s`."""
        known = self._store.top_level(kinds)
        found: dict[bytes, list[str]] = {}
        deadline = time.monotonic() + timeout_s
        for path in paths:
            if self._current(path):
                found[path] = list(dict.fromkeys(known.get(path, ())))
            elif time.monotonic() < deadline:
                symbols = self.of_file(path) or ()
                found[path] = list(dict.fromkeys(s.name for s in symbols if s.kind in kinds and not s.container))
        return found

    def _prepare(self, name: str) -> bool:
        """Parse the files that hold this name and are not parsed as they are now."""
        if self.complete:
            return True
        where, _ = self._index.candidates(trigram_query.by_literal(name))
        if where is None:
            return False
        waiting = [path for path in where.plain if _parseable(path) and not self._current(path)]
        deadline = time.monotonic() + _TIMEOUT_S
        for at in range(0, len(waiting), 20):
            if time.monotonic() > deadline:
                return False
            self._store.put([(path, symbols_of(self._root, path)) for path in waiting[at : at + 20]])
        return True

    def _true(self, select: Callable[[], list[Placed]]) -> list[Placed]:
        """What was selected, every file in it checked: one that changed is parsed again, one that is gone forgotten."""
        for _ in range(3):
            found = select()
            stale = {placed.path for placed in found if not self._current(placed.path)}
            if not stale:
                return found
            self._store.put([(path, symbols_of(self._root, path)) for path in stale])
        return [placed for placed in found if placed.path not in stale]

    def _current(self, path: bytes) -> bool:
        known = self._store.stamps.get(path)
        if known is None:
            return False
        try:
            return stamp_of(os.lstat(os.path.join(self._root, path))) == known
        except OSError:
            return False

    # The background.

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            if self._index.status()["state"] != "ready":
                continue
            change = self._index.change()
            if change in (self._done_for, -1):
                continue
            with contextlib.suppress(sqlite3.Error):
                self._catch_up(change)

    def _catch_up(self, change: int) -> None:
        paths = {path for path in self._index.paths() if _parseable(path)}
        self._files = len(paths)
        gone = [path for path in self._store.stamps if path not in paths]
        self._store.put((path, None) for path in gone)
        waiting = sorted(path for path in paths if not self._current(path))
        for at in range(0, len(waiting), _CHUNK):
            if self._stop.is_set():
                return
            self._store.put(list(self._parse(waiting[at : at + _CHUNK])))
        self._done_for = change
        self._end_worker()

    def _parse(self, paths: Iterable[bytes]) -> Iterator[tuple[bytes, Parsed | None]]:
        for path in paths:
            if self._stop.is_set():
                return
            yield path, self._ask(path)

    def _ask(self, path: bytes) -> Parsed | None:
        if self._worker is None or self._worker.poll() is not None:
            self._end_worker()
            self._worker = subprocess.Popen(
                [sys.executable, "-P", "-m", "sari.languages.worker", os.fsdecode(self._root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=os.path.dirname(sys.executable),
            )
        stdin, stdout = self._worker.stdin, self._worker.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(os.fsdecode(path)).encode() + b"\n")
            stdin.flush()
            answer = json.loads(stdout.readline())
        except (OSError, ValueError):
            # The parser may have crashed on this very file: it is left out until it changes.
            self._end_worker()
            return _unparsed(self._root, path)
        if answer is None:
            return _unparsed(self._root, path)
        stamp, rows = answer
        return Parsed(stamp, [_symbol(row) for row in rows])

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            worker.wait()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._end_worker()
        self._store.close()


def _parseable(path: bytes) -> bool:
    return catalog.of_path(os.fsdecode(path)) is not None


def _symbol(row: list[Any]) -> Symbol:
    name, kind, line, end_line, container, supers = row
    return Symbol(name, kind, line, end_line, container, tuple(supers))


def _unparsed(root: bytes, path: bytes) -> Parsed | None:
    try:
        return Parsed(stamp_of(os.lstat(os.path.join(root, path))), [])
    except OSError:
        return None
