"""The symbols of a workspace: parsed in the background by worker processes, and immediately when a query needs them.

The index provides the list of files and those that contain a name. A returned symbol was in its file when the query
arrived.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from sari.index.ripgrep import RipgrepFailed
from sari.index.search import Found, Query, search
from sari.index.workspace_index import WorkspaceIndex
from sari.languages import catalog
from sari.languages.catalog import Language
from sari.languages.parse import Span, Symbol
from sari.languages.parser_pool import ParserProcess, parse_files
from sari.languages.read import Parsed, failed, stamp_of, symbols_of
from sari.languages.store import Placed, SymbolStore

# Up to this many files are parsed faster than worker processes start.
_FEW_FILES = 60
# How long a query parses files itself before it returns a partial answer and says so.
_TIMEOUT_S = 4.0
_PAUSE_S = 1.0
# What takes a parser longest takes some milliseconds at this size, in which no other client is answered. Larger files are
# parsed in a process.
_SMALL_BYTES = 1 << 10
# Words before a name that is defined, in most languages. Only the order in which files are parsed depends on them.
_DEFINES = (
    "class|struct|interface|trait|enum|union|record|protocol|object|module|mod|namespace|type|typedef|impl|extension|"
    "def|fn|func|function|fun|sub|const|let|var|val|static|define|macro_rules!"
)


class SymbolIndex:
    """The symbols of one index's files."""

    def __init__(self, index: WorkspaceIndex) -> None:
        self._index = index
        self._root = os.fsencode(index.root)
        self._stop = threading.Event()
        # A process that may not write the index may not write its symbols either.
        self._target = index.store.folder / "symbols.db" if index.store.try_lock() else None
        self._parser = ParserProcess(self._root)
        self._opening = threading.Lock()
        self._opened: SymbolStore | None = None
        self._files = 0
        self._done_for = -2
        self._thread = threading.Thread(target=self._run, name="sari-symbols", daemon=True)
        self._thread.start()

    @property
    def _store(self) -> SymbolStore:
        """The persisted symbols, opened on first use: the query that opens a workspace may not need them."""
        with self._opening:
            if self._opened is None:
                self._opened = SymbolStore(self._target)
            return self._opened

    @property
    def complete(self) -> bool:
        """Whether everything has been parsed, as of the last change."""
        return self._done_for == self._index.change()

    def status(self) -> dict[str, object]:
        return {"files": self._files, "parsed": min(len(self._store.stamps), self._files)}

    def named(self, part: str, most: int) -> tuple[list[Placed], bool]:
        """Return symbols whose name contains `part`, and whether all files were considered."""
        complete = self._prepare(part)
        return self._true(lambda: self._store.named(part, most)), complete

    def exactly(self, name: str, most: int = 500) -> tuple[list[Placed], bool]:
        complete = self._prepare(name)
        return self._true(lambda: self._store.exactly(name, most)), complete

    def extending(self, name: str, most: int = 500) -> tuple[list[Placed], bool]:
        complete = self._prepare(name)
        return self._true(lambda: self._store.extending(name, most)), complete

    def of_file(self, path: bytes) -> list[Symbol] | None:
        """Return a file's symbols, parsed now if necessary; None if it cannot be parsed."""
        if self._current(path):
            return None if path in self._store.failed else [one.symbol for one in self._store.of_file(path)]
        parsed = next((found for _, found in self._parse([path], self._stop.is_set)), None)
        # Ignored files and those behind a link can be asked for, but are no part of other answers.
        if parsed is not None and self._index.lists(path):
            self._store.put([(path, parsed)])
        return None if parsed is None or parsed.failed else parsed.symbols

    def parse_now(self, paths: Sequence[bytes], is_over: Callable[[], bool]) -> None:
        """Parse the files of these whose current state was not parsed, so that `known_names` knows them."""
        waiting = [path for path in paths if _parseable(path) and not self._current(path)]
        if len(waiting) <= _FEW_FILES:
            self._parse_and_store(waiting, is_over)
            return
        for parsed in parse_files(self._root, waiting, is_over, background=True):
            self._store.put(parsed)

    def roles(self, language: Language, text: bytes, spans: Sequence[Span]) -> list[str | None] | None:
        """Return the roles of names in a text (`sari.languages.parse.role_at`); None if it cannot be parsed."""
        return self._parser.roles(language.name, text, spans, self._stop.is_set)

    def first_error(self, language: Language, text: bytes) -> tuple[int | None] | None:
        """Return the first line of a text with a syntax error, if there is one; None if it cannot be parsed."""
        return self._parser.first_error(language.name, text, self._stop.is_set)

    def failed_with(self, name: str, *, as_word: bool = False) -> list[bytes]:
        """Return the files that could not be parsed and contain a name: ignoring case, or as a word of its own."""
        failed = {path for path in self._store.failed.copy() if self._current(path)}
        if not failed or "\0" in name:
            return []
        query = Query(name, "words", "sensitive") if as_word else Query(name, "literal", "insensitive")
        return sorted(search(self._index, query, failed.__contains__)[0].counts)

    def known_names(self, path: bytes) -> list[str] | None:
        """Return the names that a file defines, if its current state was parsed. Never parses."""
        if not self._current(path):
            return None if _parseable(path) else []
        return [placed.symbol.name for placed in self._store.of_file(path)]

    def _prepare(self, name: str) -> bool:
        """Parse the files that contain this name and whose current state was not parsed."""
        if self.complete:
            return True
        waiting = [path for path in self._holding(name) if _parseable(path) and not self._current(path)]
        deadline = time.monotonic() + _TIMEOUT_S

        def is_late() -> bool:
            return self._stop.is_set() or time.monotonic() > deadline

        if len(waiting) > _FEW_FILES:
            for parsed in parse_files(self._root, waiting, is_late, background=False):
                self._store.put(parsed)
            return not is_late()
        return self._parse_and_store(waiting, is_late) == len(waiting)

    def _holding(self, name: str) -> list[bytes]:
        """Return the files that contain a name, ignoring case. ripgrep confirms it: while the index is being built, every
        file that is not indexed yet would be a candidate, and the name's file might not be parsed in time.
        """
        if "\0" in name:
            return []
        found, _ = search(self._index, Query(name, "literal", "insensitive"))
        return most_likely_first(found, name)

    def _true(self, select: Callable[[], list[Placed]]) -> list[Placed]:
        """Return the selection after checking every file in it: changed files are parsed again, missing ones removed."""
        for _ in range(3):
            found = select()
            stale = {placed.path for placed in found if not self._current(placed.path)}
            if not stale:
                return found
            self._parse_and_store(sorted(stale), self._stop.is_set)
        return [placed for placed in found if placed.path not in stale]

    def _parse_and_store(self, paths: Sequence[bytes], is_over: Callable[[], bool]) -> int:
        """Parse files now, and return how many were parsed. One at a time, because each can have very many symbols."""
        count = 0
        for result in self._parse(paths, is_over):
            self._store.put([result])
            count += 1
        return count

    def _parse(self, paths: Sequence[bytes], is_over: Callable[[], bool]) -> Iterator[tuple[bytes, Parsed | None]]:
        """Parse files now, in this order: small ones here, others in a process, where a text that takes the parser too long
        harms nobody.
        """
        for path in paths:
            if is_over():
                return
            if self._is_small(path):
                yield path, symbols_of(self._root, path, _SMALL_BYTES) or failed(self._root, path)
            else:
                yield from self._parser.parse([path], is_over)

    def _is_small(self, path: bytes) -> bool:
        try:
            return os.stat(os.path.join(self._root, path)).st_size <= _SMALL_BYTES
        except OSError:
            return True

    def _current(self, path: bytes) -> bool:
        known = self._store.stamps.get(path)
        if known is None:
            return False
        try:
            return stamp_of(os.lstat(os.path.join(self._root, path))) == known
        except OSError:
            return False

    # Background work.

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            if self._index.status()["state"] != "ready":
                continue
            change = self._index.known_change()
            if change in (self._done_for, -1):
                continue
            with contextlib.suppress(sqlite3.Error, RipgrepFailed):
                self._catch_up(change)

    def _catch_up(self, change: int) -> None:
        since = self._index.changed_since(self._done_for)
        if since is None:
            existing = {path for path in self._index.paths() if _parseable(path)}
            gone = [path for path in self._store.stamps if path not in existing]
            self._files = len(existing)
        else:
            existing = {path for path in since[0] if _parseable(path)}
            gone = [path for path in since[1] if path in self._store.stamps]
        self._store.put((path, None) for path in gone)
        waiting = sorted(path for path in existing if not self._current(path))
        for parsed in parse_files(self._root, waiting, self._stop.is_set, background=True):
            self._store.put(parsed)
        if since is not None:
            self._files = len(self._store.stamps)
        if not self._stop.is_set():
            self._done_for = change

    def interrupt(self) -> None:
        """Stop parsing, and refuse it from now on: the workspace is being closed."""
        self._stop.set()
        self._parser.close()

    def close(self) -> None:
        self.interrupt()
        self._thread.join()
        if self._opened is not None:
            self._opened.close()


def most_likely_first(found: Found, name: str) -> list[bytes]:
    """Return the files with those first that seem to define the name: in a large tree there is no time to parse all."""
    word = rf"(?<!\w){re.escape(name)}(?!\w)"
    # Not behind a parenthesis or colon, where a type of a parameter or variable stands, except behind Go's receivers.
    defines = re.compile(rf"\b(?:{_DEFINES})\b\s*(?:\([^()]*\))?[^=;:({{]{{0,80}}?{word}")
    mentions = re.compile(word)

    def rank(path: bytes) -> int:
        lines = [hit.text for hit in found.hits.get(path, ())]
        if any(map(defines.search, lines)):
            return 0
        return 1 if any(map(mentions.search, lines)) else 2

    return sorted(found.counts, key=rank)


def _parseable(path: bytes) -> bool:
    name = os.fsdecode(path)
    return catalog.of_path(name) is not None or catalog.may_be_script(name)
