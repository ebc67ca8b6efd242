"""The term index of one workspace: built in the background, updated when a question arrives.

The workspace's index provides the list of files, and its symbols the definitions. A question reads the files that it
returns, so a snippet always shows the current content; the index only decides which files are read.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from sari.index.ripgrep import RipgrepFailed
from sari.index.workspace_index import WorkspaceIndex
from sari.languages.read import read_text, stamp_of
from sari.languages.symbol_index import SymbolIndex
from sari.ranking import git_log
from sari.ranking.corpus import SHIFT, Corpus
from sari.ranking.extract import MAX_BYTES
from sari.ranking.file_history import FileHistory
from sari.ranking.rank import Ranked
from sari.ranking.ranker import FileContent, answer, file_content
from sari.ranking.segment_builder import WORKERS, File, SegmentBuilder
from sari.ranking.segment_store import SegmentStore
from sari.ranking.term_segment import DamagedSegment, TermSegment

_PAUSE_S = 1.0
# A question indexes up to this many changed files itself; more are left to the background.
FEW = 64
# Below this, starting a worker costs more than it gains.
_ALONE_BELOW = 100
_BATCH = 8_000
_MOST_SEGMENTS = 16
# The symbols of the same files are being parsed. Waiting for them avoids parsing twice.
_WAIT_FOR_SYMBOLS_S = 120.0
_HEAD_EVERY_S = 15.0
_KEPT_FILES = 256
_KEPT_BYTES = 64 << 20
_MOSTLY = 0.9
# A question waits this long for the definitions of changed files.
_PARSE_TIMEOUT_S = 2.0
# More names of one file, or of the files of some segments, say nothing that the text does not say.
_MOST_NAME_BYTES = 64 << 10
_MOST_NAMES_BYTES = 32 << 20
# A larger segment is full: merging it with others would not make fewer of them.
_FULL_BYTES = 32 << 20


class TermIndex:
    """Maps terms to files, for one workspace."""

    def __init__(self, index: WorkspaceIndex, symbols: SymbolIndex) -> None:
        self._index = index
        self._symbols = symbols
        self._root = os.fsencode(index.root)
        self._store = SegmentStore(index.store.folder / "terms" if index.store.try_lock() else None)
        self._builder = SegmentBuilder(self._root)
        self._segments: list[TermSegment] = []
        self._history = FileHistory()
        self._corpus = Corpus((), {}, self._history)
        self._stamps: dict[bytes, int] = {}
        self._done_for = -2
        self._head, self._head_at = "", -_HEAD_EVERY_S
        self._began = time.monotonic()
        self._contents: OrderedDict[bytes, tuple[int, FileContent]] = OrderedDict()
        self._contents_bytes = 0
        self._loading = threading.Lock()
        self._loaded = False
        self._working = threading.Lock()
        self._caught_up = threading.Event()
        self._keeping = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sari-terms", daemon=True)
        self._thread.start()

    @property
    def complete(self) -> bool:
        """Whether everything has been indexed, as of the last change."""
        return self._done_for == self._index.change()

    def wait_built(self, timeout_s: float) -> bool:
        """Wait until all files have been indexed once."""
        return self._caught_up.wait(timeout_s)

    def status(self) -> dict[str, object]:
        return {"files": len(self._stamps), "bytes": sum(segment.bytes for segment in self._segments)}

    def ask(
        self, question: str, keep: Callable[[bytes], bool] | None, cancelled: Callable[[], bool]
    ) -> tuple[list[Ranked], bool]:
        """Return the files that answer a question, best first, and whether all files were considered."""
        complete = self.complete or self._catch_up_few()
        for _ in range(3):
            try:
                return answer(self._corpus, question, self.content, keep=keep, cancelled=cancelled), complete
            except DamagedSegment:
                with self._working:
                    self._drop_damaged()
                complete = False
        return [], False

    @property
    def usable(self) -> bool:
        """Whether most files are indexed, so that an answer is useful. A persisted index is usable at once."""
        self._load()
        if self._index.known_change() == -1:
            return bool(self._stamps)
        files = self._index.status()["files"]
        return isinstance(files, int) and len(self._stamps) >= _MOSTLY * files

    def _load(self) -> None:
        """Open the persisted segments, once. Not while a workspace is opened: its first query may not need them."""
        with self._loading:
            if not self._loaded:
                self._segments = self._store.load()
                if self._segments:
                    self._arrange({path for segment in self._segments for path in segment.paths})
                self._loaded = True

    def ask_of(self, question: str, paths: Sequence[bytes], cancelled: Callable[[], bool]) -> list[Ranked]:
        """Like `ask`, but for these files alone, read now. Used before the index exists."""
        store = SegmentStore(None)
        try:
            target = store.new_segment()
            # Parsing all of them would take seconds. The best of them are parsed when they are read.
            self._builder.build(target, self._with_names([paths])[0])
            segment = TermSegment(target)
            try:
                where = {path: number for number, path in enumerate(segment.paths)}
                return answer(Corpus([segment], where, self._history), question, self.content, cancelled=cancelled)
            finally:
                segment.close()
        finally:
            store.close()

    def content(self, path: bytes) -> FileContent | None:
        """Return a file's current content; None if it no longer exists or is not text."""
        stamp = self._stamp(path)
        if stamp is None:
            return None
        with self._keeping:
            kept = self._contents.get(path)
            if kept is not None and kept[0] == stamp:
                self._contents.move_to_end(path)
                return kept[1]
        read = read_text(self._root, path, MAX_BYTES)
        if read is None or b"\0" in read[0][:8_000]:
            return None
        lines = read[0].decode("utf-8", "replace").split("\n")
        content = file_content(lines, self._symbols.of_file(path) or ())
        with self._keeping:
            old = self._contents.pop(path, None)
            self._contents[path] = (read[1], content)
            self._contents_bytes += content.bytes - (0 if old is None else old[1].bytes)
            while len(self._contents) > _KEPT_FILES or (self._contents_bytes > _KEPT_BYTES and self._contents):
                self._contents_bytes -= self._contents.popitem(last=False)[1][1].bytes
        return content

    def close(self) -> None:
        self._stop.set()
        self._builder.interrupt()
        self._thread.join()
        with self._working:
            self._builder.close()
            for segment in self._segments:
                segment.close()
            self._store.close()

    # Keeping up with the workspace.

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            self._load()
            if self._index.status()["state"] != "ready":
                continue
            change = self._index.known_change()
            with contextlib.suppress(OSError, sqlite3.Error, RipgrepFailed), self._working:
                if change == -1 or not (self._symbols.complete or self._waited_long()):
                    continue
                self._read_history()
                if change != self._done_for:
                    self._catch_up(change)

    def _waited_long(self) -> bool:
        return time.monotonic() - self._began > _WAIT_FOR_SYMBOLS_S or bool(self._stamps)

    def _read_history(self) -> None:
        now = time.monotonic()
        if now - self._head_at < _HEAD_EVERY_S:
            return
        self._head_at = now
        head = git_log.head_of(self._index.root)
        if head != self._head:
            self._history = git_log.read_history(self._index.root) if head else FileHistory()
            self._head = head
            self._arrange(self._corpus.where.keys())

    def _catch_up_few(self) -> bool:
        """Index the changes if they are few. Returns whether everything is indexed now."""
        change = self._index.change()
        if change == -1 or not self._stamps or not self._working.acquire(timeout=0.2):
            return False
        try:
            waiting = self._waiting()
            if len(waiting) > FEW:
                return False
            # In a process with limits: a changed file can take a parser minutes.
            deadline = time.monotonic() + _PARSE_TIMEOUT_S
            self._symbols.parse_now(waiting, lambda: self._stop.is_set() or time.monotonic() > deadline)
            ready = [path for path in waiting if self._symbols.known_names(path) is not None]
            if ready:
                self._build([ready], in_workers=False)
            if len(ready) < len(waiting):
                return False
            self._done_for = change
            return True
        except (OSError, sqlite3.Error):
            return False
        finally:
            self._working.release()

    def _catch_up(self, change: int) -> None:
        waiting = self._waiting()
        self._symbols.parse_now(waiting, self._stop.is_set)
        self._build_all(waiting)
        self._compact()
        self._builder.close()
        if not self._stop.is_set():
            self._done_for = change
            self._caught_up.set()

    def _build_all(self, paths: Sequence[bytes]) -> None:
        """Index files, in as many segments as there are workers, or in more if they are many."""
        size = max(_ALONE_BELOW, min(_BATCH, -(-len(paths) // WORKERS)))
        batches = [paths[at : at + size] for at in range(0, len(paths), size)]
        for at in range(0, len(batches), WORKERS):
            if self._stop.is_set():
                return
            self._build(batches[at : at + WORKERS], in_workers=len(paths) >= _ALONE_BELOW)

    def _waiting(self) -> list[bytes]:
        """Return files whose current state is not indexed. Removes missing ones."""
        since = self._index.changed_since(self._done_for)
        existing = set(self._index.paths()) if since is None else since[0]
        now = {path: stamp for path in existing if (stamp := self._stamp(path)) is not None}
        gone = self._stamps.keys() - now.keys() if since is None else (since[0] - now.keys()) | since[1]
        if not gone.isdisjoint(self._stamps):
            self._arrange(self._stamps.keys() - gone)
        return sorted(path for path, stamp in now.items() if self._stamps.get(path) != stamp)

    def _stamp(self, path: bytes) -> int | None:
        try:
            stat = os.lstat(os.path.join(self._root, path))
        except OSError:
            return None
        return stamp_of(stat) if stat.st_mode & 0o170000 == 0o100000 else None

    def _build(self, batches: Sequence[Sequence[bytes]], *, in_workers: bool) -> None:
        """Add a segment for each batch, or several if the files have very many different terms."""
        left = self._with_names(batches)
        while left and not self._stop.is_set():
            files = [(self._store.new_segment(), batch) for batch in left]
            if in_workers:
                counts = self._builder.build_in_workers(files)
            else:
                counts = [self._builder.build(target, batch) for target, batch in files]
            for target, _ in files:
                with contextlib.suppress(DamagedSegment, OSError):
                    self._segments.append(TermSegment(target))
            left = [batch[count:] for (_, batch), count in zip(files, counts, strict=True) if 0 < count < len(batch)]
        self._arrange({*self._corpus.where, *(path for batch in batches for path in batch)})
        self._store.save(self._segments)

    def _with_names(self, batches: Sequence[Sequence[bytes]]) -> list[Sequence[File]]:
        left = _MOST_NAMES_BYTES
        found: list[Sequence[File]] = []
        for batch in batches:
            files: list[File] = []
            for path in batch:
                names = _first_names(self._symbols.known_names(path) or (), min(left, _MOST_NAME_BYTES))
                left -= sum(map(len, names))
                files.append((path, names))
            found.append(files)
        return found

    def _arrange(self, live: Iterable[bytes]) -> None:
        """Build the corpus of live files. If several segments contain a file, the newest counts."""
        wanted = live if isinstance(live, set) else set(live)
        where: dict[bytes, int] = {}
        stamps: dict[bytes, int] = {}
        for number, segment in enumerate(self._segments):
            for local, path in enumerate(segment.paths):
                if path in wanted:
                    where[path] = number << SHIFT | local
                    stamps[path] = segment.stamps[local]
        self._stamps = stamps
        self._corpus = Corpus(self._segments, where, self._history)

    def _compact(self) -> None:
        """Merge the smallest of too many segments, and those mostly out of date, into one."""
        living = [0] * len(self._segments)
        for document in self._corpus.where.values():
            living[document >> SHIFT] += 1
        chosen = {n for n, segment in enumerate(self._segments) if living[n] * 2 < len(segment.paths)}
        few = [n for n, segment in enumerate(self._segments) if segment.bytes < _FULL_BYTES]
        if len(few) > _MOST_SEGMENTS:
            chosen.update(sorted(few, key=living.__getitem__)[: _MOST_SEGMENTS // 2])
        if not chosen:
            return
        paths = [path for path, document in self._corpus.where.items() if document >> SHIFT in chosen]
        old = [self._segments[number] for number in sorted(chosen)]
        self._build_all(paths)
        if not self._stop.is_set():
            self._remove(old)

    def _drop_damaged(self) -> None:
        damaged = []
        for segment in self._segments:
            try:
                segment.check()
            except DamagedSegment:
                damaged.append(segment)
        self._remove(damaged)
        self._done_for = -2

    def _remove(self, old: Sequence[TermSegment]) -> None:
        if not old:
            return
        live = set(self._corpus.where)
        # A running question may still use these segments. They are closed when unreferenced.
        self._segments = [segment for segment in self._segments if segment not in old]
        self._arrange(live)
        self._store.save(self._segments)


def _first_names(names: Iterable[str], most_bytes: int) -> list[str]:
    """Return the first different names of a file, as long as they are together at most."""
    found: list[str] = []
    for name in dict.fromkeys(names):
        most_bytes -= len(name)
        if most_bytes < 0:
            break
        found.append(name)
    return found
