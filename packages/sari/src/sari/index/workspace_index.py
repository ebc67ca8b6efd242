"""The index of one workspace: opened in the background, kept up to date with the disk, usable at any time.

One thread opens, watches, builds and merges. Queries come from other threads and first apply all changes made
before them. Files that are not indexed yet are pending and searched directly, so the answer is always complete.

    opening ──a persisted index and a listing──► listed ──watches are set──► watched
       queries walk the tree, or wait for       queries compare with        queries read the
       the listing where an index is persisted  the disk first              queue of events first
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sari.index import build, ripgrep
from sari.index.disk import Disk, apply_events, compare, look_into
from sari.index.ignore import Ignored
from sari.index.segment import Damaged, Segment
from sari.index.store import Store
from sari.index.table import Candidates, Table
from sari.index.trigram_query import TrigramQuery
from sari.index.watch import NoWatching, Touched, Watcher

# A segment for a few files is not worth building while each query can search them in negligible time.
_FEW_PENDING = 64
_QUIET_S = 0.3
_SETTLE_FEW_S = 20.0
# Interval of comparisons with the disk, in case the watch missed a change (an mmap write, a change below a mount).
_COMPARE_S = 120.0
_LOCK_RETRY_S = 1.0
# Listing a tree is much faster than searching it: if an index is persisted, a query waits for the listing.
_LISTING_TIMEOUT_S = 20.0
_ANSWER_FIRST_S = 0.1
# After the watches ran out (others may have been freed, or the limit raised), or ripgrep died while listing the tree.
_RETRY_S = 60.0
_MOST_SEGMENTS = 24
# With more pending files than this, ripgrep's walk of the complete tree is faster than a list.
MOST_PENDING = 15_000


class WorkspaceIndex:
    """One root, indexed and watched until it is closed."""

    def __init__(self, root: Path, data_dir: Path) -> None:
        self.root = root
        self._stop = threading.Event()
        self._disk = Disk(root, self._is_ending)
        self.store = Store(root, data_dir)
        self._table = Table()
        self._lock = threading.RLock()
        self._watcher: Watcher | None = None
        self._watched_root: tuple[int, int] | None = None
        self._watch_after = 0.0
        self._compare_began = 0.0
        self._why_polling = ""
        self._is_persisted = self.store.is_persisted()
        self._listed = threading.Event()
        self._settled = threading.Event()
        self._wake_r, self._wake_w = os.pipe()
        self._last_touch = self._last_flush = self._last_compare = self._last_lock = 0.0
        self.damaged: list[str] = []
        self.failed = ""
        self._thread = threading.Thread(target=self._run_until_closed, name="sari-index", daemon=True)
        self._thread.start()

    # Used by queries.

    def candidates(
        self, query: TrigramQuery, keep: Callable[[bytes], bool] | None = None
    ) -> tuple[Candidates | None, int]:
        """Return where to search, and the state of the tree that this belongs to. None: not listed yet, let ripgrep
        walk.
        """
        queried_at = time.monotonic()
        if not self._listed.is_set() and not (self._is_persisted and self._listed.wait(_LISTING_TIMEOUT_S)):
            return None, -1
        with self._lock:
            self.refresh(queried_at)
            while True:
                try:
                    found = self._table.candidates(query)
                    break
                except Damaged as damage:
                    if damage.segment is None:
                        raise
                    self.damaged.append(damage.segment.path.name)
                    self._table.lose(damage.segment)
            change = self._table.change
        if keep is not None:
            found.sift(keep)
        if len(found.unread) > MOST_PENDING:
            return None, change
        judged = look_into(found, self._disk)
        with self._lock:
            for one in judged:
                self._table.judge(*one)
        return found, change

    def paths(self) -> list[bytes]:
        """Return all files, as of now."""
        if not self._listed.is_set():
            return ripgrep.files(self.root)
        with self._lock:
            self.refresh()
            return self._table.paths()

    def lists(self, path: bytes) -> bool:
        """Return whether a file is one of these as of the last refresh: not ignored, not behind a link."""
        return self._listed.is_set() and path in self._table

    def change(self) -> int:
        """Return a number that differs after any change; -1 while that would require a comparison with the disk."""
        with self._lock:
            if not self._listed.is_set() or self._watcher is None:
                return -1
            self.refresh()
            return self._table.change if self._watcher is not None else -1

    def known_change(self) -> int:
        """Return the same number as of the last refresh; -1 before the first listing."""
        return self._table.change if self._listed.is_set() else -1

    def changed_since(self, change: int) -> tuple[set[bytes], set[bytes]] | None:
        """Return the files that changed since `change()` was this number, and those removed; None if not known."""
        with self._lock:
            return self._table.changed_since(change) if self._listed.is_set() else None

    def wait_settled(self, timeout_s: float) -> bool:
        """Wait until everything is indexed."""
        return self._settled.wait(timeout_s)

    def wait_listed(self, timeout_s: float) -> bool:
        """Wait until the first comparison with the disk is done."""
        return self._listed.wait(timeout_s)

    def is_warm(self) -> bool:
        """Whether a query needs neither a comparison with the disk nor a look into files."""
        return self._settled.is_set() and self._listed.is_set() and self._watcher is not None

    def status(self) -> dict[str, object]:
        table = self._table
        pending = len(table.pending)
        if not self._listed.is_set():
            state = "scanning"
        elif not self._settled.is_set():
            state = "indexing"
        else:
            state = "ready"
        watcher = self._watcher
        size = sum(segment.bytes for segment in list(table.segments))
        return {
            "state": state,
            "files": len(table),
            "indexed": table.indexed,
            "pending": pending,
            "watching": self._watching(watcher),
            "writer": self.store.writer,
            "index_bytes": size,
        }

    def _watching(self, watcher: Watcher | None) -> str:
        if watcher:
            return f"inotify, {watcher.folders} folders"
        return f"polling ({self._why_polling})" if self._why_polling else "starting"

    def compare(self) -> int:
        """Compare everything with the disk now. Returns how many files differed from the known state."""
        if not self._listed.wait(60):
            return 0
        with self._lock:
            if self._watcher is not None:
                self.refresh()
            return self._compare()

    def close(self) -> None:
        """Stop, and release the index to other processes. Can be called twice."""
        if self._stop.is_set():
            return
        self._stop.set()
        os.write(self._wake_w, b"x")
        self._thread.join()
        with self._lock:
            if self._watcher is not None:
                self._watcher.close()
                self._watcher = None
            self._table.close()
            self.store.close()
        os.close(self._wake_r)
        os.close(self._wake_w)

    # Keeping up with the disk. All of this holds the lock.

    def refresh(self, queried_at: float = float("inf")) -> None:
        """Apply all changes made until now, or at least until `queried_at`."""
        if self._watcher is not None and self._disk.root_identity() != self._watched_root:
            # The root was moved or replaced, and the watches with it. The thread sets new ones.
            self._stop_watching("the root was replaced")
        if self._watcher is None:
            # A comparison that began after the query arrived knows of every save made before it.
            if self._compare_began < queried_at:
                self._compare()
            return
        try:
            touched = self._watcher.drain()
            if touched:
                self._last_touch = time.monotonic()
                self._apply(touched)
        except (NoWatching, ripgrep.RipgrepDied) as reason:
            self._stop_watching(str(reason))
            self._compare()

    def _apply(self, touched: Touched) -> None:
        fresh = self._watch_again() if touched.rules or touched.lost else []
        if touched.lost:
            self._compare()
            return
        apply_events(self._table, self._disk, touched, fresh)

    def _compare(self) -> int:
        self._last_compare = self._compare_began = time.monotonic()
        try:
            return compare(self._table, self._disk)
        except ripgrep.RipgrepDied as died:
            self._compare_began = 0.0
            self._stop_watching(str(died))
            raise

    def _watch_again(self) -> list[bytes]:
        ignored = Ignored(self.root)
        assert self._watcher is not None
        self._watcher.skip = ignored.folder
        return self._watcher.watch_tree()

    def _stop_watching(self, reason: str) -> None:
        self._why_polling = reason
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    # The background thread.

    def _is_ending(self) -> bool:
        """Return whether this is the background thread and the workspace is closing. A query is answered to its end."""
        return self._stop.is_set() and threading.current_thread() is self._thread

    def _run_until_closed(self) -> None:
        with contextlib.suppress(ripgrep.Cancelled):
            while not self._stop.is_set():
                try:
                    self._run()
                except ripgrep.RipgrepDied as died:
                    # Queries let ripgrep walk, and so report the reason, until the tree can be listed.
                    self.failed = str(died)
                    self._listed.clear()
                    self._stop.wait(_RETRY_S)

    def _run(self) -> None:
        self._open()
        while not self._stop.is_set():
            self._wait()
            if self._stop.is_set():
                return
            self._take_over()
            self._start_watching()
            with self._lock:
                now = time.monotonic()
                if self._watcher is not None or now - self._last_compare > _COMPARE_S / 12:
                    self.refresh()
                if now - self._last_compare > _COMPARE_S and now - self._last_touch > _COMPARE_S / 4:
                    self._compare()
                if self._table.pending and not self._few():
                    self._settled.clear()
            if self._flush_due():
                self._flush_or_wait()

    def _open(self) -> None:
        """Load the persisted index and list the tree, then watch it and index the rest."""
        self.store.try_lock()
        segments, self.damaged = self.store.load()
        began = time.monotonic()
        # The numbers of changes go on, so that a reader of the previous table does not mistake one for another.
        table = Table(self._table.change + 1)
        table.adopt_persisted(segments, self._disk.scan)
        with self._lock:
            self._table.close()
            self._table = table
            self._last_compare = time.monotonic()
            self._compare_began = began
        if not table.pending:
            self._settled.set()
        self.failed = ""
        self._listed.set()
        if self._is_persisted:
            # The query that opened the workspace is answered first: setting watches would take its CPU time.
            self._stop.wait(_ANSWER_FIRST_S)
        self._start_watching()
        self._flush_or_wait()

    def _start_watching(self) -> None:
        """Watch the tree if it is not watched yet. Until then, queries compare with the disk."""
        if self._watcher is not None or self._stop.is_set() or time.monotonic() < self._watch_after:
            return
        root = self._disk.root_identity()
        if root is None:
            return
        watcher: Watcher | None = None
        try:
            watcher = Watcher(self.root, Ignored(self.root).folder)
            watcher.watch_tree(stop=self._stop.is_set)
        except NoWatching as reason:
            if watcher is not None:
                watcher.close()
            self._why_polling = str(reason)
            self._watch_after = time.monotonic() + _RETRY_S
            return
        if self._stop.is_set():
            watcher.close()
            return
        with self._lock:
            self._watcher, self._watched_root = watcher, root
            # This comparison finds changes made before the folder was watched. Later changes are queued.
            self._compare()

    def _take_over(self) -> None:
        """Take over after the writer has gone: read its index and write from now on."""
        now = time.monotonic()
        if self.store.writer or now - self._last_lock < _LOCK_RETRY_S:
            return
        self._last_lock = now
        if self.store.try_lock():
            self._listed.clear()
            with self._lock:
                self._stop_watching("starting")
            self._open()

    def _wait(self) -> None:
        watcher = self._watcher
        waiting = [self._wake_r] if watcher is None else [self._wake_r, watcher.fd]
        with contextlib.suppress(OSError, ValueError):
            select.select(waiting, [], [], 0.5)
        # A program that writes continuously must not keep this thread busy; queries refresh by themselves.
        self._stop.wait(0.1)

    def _few(self) -> bool:
        return len(self._table.pending) < _FEW_PENDING

    def _flush_due(self) -> bool:
        if not self.store.writer or not self._table.pending:
            self._settled.set()
            return False
        now = time.monotonic()
        if self._few():
            self._settled.set()
            return now - self._last_touch > _QUIET_S and now - self._last_flush > _SETTLE_FEW_S
        return now - self._last_touch > _QUIET_S or now - self._last_flush > _SETTLE_FEW_S / 4

    def _flush_or_wait(self) -> None:
        """Flush. A full disk or a removed folder costs speed, not answers: pending files are searched directly."""
        try:
            self._flush()
        except OSError as error:
            self.failed = str(error)
            self._settled.set()

    def _flush(self) -> None:
        """Index the pending files, then compact the segments."""
        self._last_flush = time.monotonic()
        if self.store.writer:
            self._build()
            with self._lock:
                stale = self._table.to_compact(_MOST_SEGMENTS)
                for path in stale:
                    self._table.mark(path)
            if stale and not self._stop.is_set():
                self._build()
            with self._lock:
                self._table.drop_dead()
                if not self._stop.is_set():
                    self.store.save(self._table.segments)
                    self.store.sweep(self._table.segments)
        self._settled.set()

    def _build(self) -> None:
        with self._lock:
            paths = sorted(self._table.pending)
            before = self._table.change
        if not paths:
            return
        for target, count in build.build(self.root, paths, self.store.new_segment, self._stop.is_set):
            if not count or self._stop.is_set():
                continue
            with self._lock:
                self._table.adopt(Segment(target, verify=False), before)
                self.store.save(self._table.segments)
