"""The workspace's files, and where each one is indexed. In memory; not thread-safe: its owner holds a lock.

A file is either indexed (a segment contains its current state) or pending (it exists, but the index does not know its
content). Every query searches pending files, so an answer never waits for the index and never misses a file.
"""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from sari.index.segment import ALONE, LARGE, LARGE_ALONE, TEXT, Segment
from sari.index.stamp_workers import Recorded
from sari.index.trigram_query import TrigramQuery

Numbers = tuple[int, int, int, int]
# How many changes are remembered one by one, for readers that follow the table.
_JOURNAL = 4_096


def numbers_of(stat: os.stat_result) -> Numbers:
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino & 0x7FFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Scan:
    """The tree as it is now: the files that are not ignored, and for each list of recorded files those that differ."""

    listed: set[bytes]
    changed: list[set[int]]


class _Part:
    """A segment, with the data of it that is kept in memory."""

    __slots__ = ("dead", "kinds", "paths", "segment", "stamps")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.paths: list[bytes]
        self.stamps: array[int]
        self.kinds: bytes
        self.paths, self.stamps, self.kinds = segment.entries()
        self.dead = len(self.paths)


class Candidates:
    """Files in which a query may match. `plain` files contain no NUL, `alone` files are searched one by one, `unread`
    are unknown.
    """

    __slots__ = ("alone", "plain", "unread")

    def __init__(self) -> None:
        self.plain: list[bytes] = []
        self.alone: list[bytes] = []
        self.unread: list[tuple[bytes, int]] = []

    def add(self, path: bytes, kind: int) -> None:
        if kind in (TEXT, LARGE):
            self.plain.append(path)
        elif kind in (ALONE, LARGE_ALONE):
            self.alone.append(path)

    def sift(self, keep: Callable[[bytes], bool]) -> None:
        self.plain = [path for path in self.plain if keep(path)]
        self.alone = [path for path in self.alone if keep(path)]
        self.unread = [(path, change) for path, change in self.unread if keep(path)]


class Table:
    """Maps each path to its place in the index, and holds the pending files."""

    def __init__(self, change: int = 0) -> None:
        self._parts: dict[int, _Part] = {}
        self._next_part = 0
        self._at: dict[bytes, int] = {}
        self._large: dict[bytes, int] = {}
        self._judged: dict[bytes, tuple[int, Numbers]] = {}
        # Path → the change that made it pending. A segment built before that change does not index it.
        self.pending: dict[bytes, int] = {}
        # Counts every change, so that an answer can be distinguished from an older one.
        self.change = change
        # The path of each of the last changes.
        self._journal: deque[bytes] = deque(maxlen=_JOURNAL)
        # Folder → its files. Built on first use: an answer does not need it.
        self._folders: dict[bytes, set[bytes]] | None = None

    def __len__(self) -> int:
        return len(self._at) + len(self.pending)

    def __contains__(self, path: bytes) -> bool:
        return path in self._at or path in self.pending

    @property
    def indexed(self) -> int:
        return len(self._at)

    @property
    def segments(self) -> list[Segment]:
        return [part.segment for part in self._parts.values()]

    def paths(self) -> list[bytes]:
        return [*self._at, *self.pending]

    def folders(self) -> dict[bytes, set[bytes]]:
        """Return the folders that contain files, each with its files."""
        if self._folders is None:
            self._folders = {}
            for path in self.paths():
                self._folders.setdefault(path.rpartition(b"/")[0], set()).add(path)
        return self._folders

    def in_folder(self, folder: bytes) -> set[bytes]:
        return self.folders().get(folder, set())

    def below(self, folder: bytes) -> list[bytes]:
        """Return all known files below a folder."""
        if not folder:
            return self.paths()
        lead = folder + b"/"
        return [p for f, files in self.folders().items() if f == folder or f.startswith(lead) for p in files]

    def stamp(self, path: bytes) -> Numbers | None:
        """Return the file's stamp when it was indexed."""
        code = self._at.get(path)
        if code is None:
            return None
        part, local = self._parts[code >> 16], code & 0xFFFF
        a, b, c, d = part.stamps[4 * local : 4 * local + 4]
        return a, b, c, d

    def mark(self, path: bytes) -> None:
        """Record that the file exists and has changed."""
        self._count(path)
        if self._folders is not None and path not in self:
            self._folders.setdefault(path.rpartition(b"/")[0], set()).add(path)
        self._unindex(path)
        self._judged.pop(path, None)
        self.pending[path] = self.change

    def _count(self, path: bytes) -> None:
        self.change += 1
        self._journal.append(path)

    def changed_since(self, change: int) -> tuple[set[bytes], set[bytes]] | None:
        """Return the files that changed after a change, and those removed; None if that is not remembered."""
        count = self.change - change
        if not 0 <= count <= len(self._journal):
            return None
        touched = set(islice(reversed(self._journal), count))
        changed = {path for path in touched if path in self}
        return changed, touched - changed

    def judge(self, path: bytes, change: int, kind: int, stamp: Numbers) -> None:
        """Record a pending file's kind in this state, unless it has changed since."""
        if self.pending.get(path) == change:
            self._judged[path] = kind, stamp

    def knows(self, path: bytes, stamp: Numbers) -> bool:
        """Whether the known data belongs to this state of the file."""
        if path in self.pending:
            judged = self._judged.get(path)
            return judged is None or judged[1] == stamp
        return self.stamp(path) == stamp

    def remove(self, path: bytes) -> None:
        """Remove a file that no longer exists or is now ignored."""
        if path not in self:
            return
        self._count(path)
        self._unindex(path)
        self.pending.pop(path, None)
        self._judged.pop(path, None)
        if self._folders is not None:
            folder = path.rpartition(b"/")[0]
            self._folders[folder].discard(path)
            if not self._folders[folder]:
                del self._folders[folder]

    def _unindex(self, path: bytes) -> None:
        code = self._at.pop(path, None)
        if code is not None:
            self._parts[code >> 16].dead += 1
            self._large.pop(path, None)

    def adopt(self, segment: Segment, before: int) -> int:
        """Add a segment that was built. It settles the pending files that did not change after `before`; returns how
        many.
        """
        part, number = self._add(segment)
        settled = 0
        for local, path in enumerate(part.paths):
            if self.pending.get(path, before + 1) > before:
                continue
            del self.pending[path]
            self._judged.pop(path, None)
            self._place(part, number, local)
            settled += 1
        if not settled:
            self._drop(number)
        return settled

    def adopt_persisted(self, segments: Sequence[Segment], scan: Callable[[Sequence[Recorded]], Scan]) -> None:
        """Fill an empty table: with the files of these segments, oldest first, that are listed and unchanged."""
        parts = [self._add(segment) for segment in segments]
        found = scan([(part.paths, part.stamps) for part, _ in parts])
        for (part, number), changed in zip(parts, found.changed, strict=True):
            paths = part.paths
            if not changed and found.listed.issuperset(paths) and self._at.keys().isdisjoint(paths):
                # The usual case, without a step per file.
                self._at.update(zip(paths, range(number << 16, (number << 16) + len(paths)), strict=True))
                part.dead = 0
                large = [local for local, kind in enumerate(part.kinds) if kind in (LARGE, LARGE_ALONE)]
                self._large.update((paths[local], part.kinds[local]) for local in large)
                continue
            for local, path in enumerate(paths):
                if local not in changed and path in found.listed:
                    self._unindex(path)
                    self._place(part, number, local)
        self.drop_dead()
        for path in found.listed - self._at.keys():
            self.mark(path)

    def recorded(self) -> list[Recorded]:
        """Return what the segments recorded, for a scan. `changed_in` reads its result."""
        return [(part.paths, part.stamps) for part in self._parts.values()]

    def changed_in(self, changed: Sequence[set[int]]) -> list[bytes]:
        """Return the indexed files that a scan of `recorded` found changed."""
        return [
            part.paths[local]
            for (number, part), some in zip(self._parts.items(), changed, strict=True)
            for local in some
            if self._at.get(part.paths[local]) == number << 16 | local
        ]

    def _add(self, segment: Segment) -> tuple[_Part, int]:
        part, number = _Part(segment), self._next_part
        self._next_part += 1
        self._parts[number] = part
        return part, number

    def _place(self, part: _Part, number: int, local: int) -> None:
        path = part.paths[local]
        self._at[path] = number << 16 | local
        part.dead -= 1
        if part.kinds[local] in (LARGE, LARGE_ALONE):
            self._large[path] = part.kinds[local]

    def _drop(self, number: int) -> None:
        self._parts.pop(number).segment.close()

    def drop_dead(self) -> bool:
        """Close segments without live files."""
        dead = [number for number, part in self._parts.items() if part.dead == len(part.paths)]
        for number in dead:
            self._drop(number)
        return bool(dead)

    def to_compact(self, most: int) -> list[bytes]:
        """Return the live files of segments that should be rebuilt: mostly dead ones, or the smallest of too many."""
        chosen = [n for n, part in self._parts.items() if part.dead * 2 > len(part.paths)]
        if len(self._parts) > most:
            by_size = sorted(self._parts, key=lambda n: len(self._parts[n].paths) - self._parts[n].dead)
            chosen.extend(by_size[: most // 2])
        numbers = set(chosen)
        return [path for path, code in self._at.items() if code >> 16 in numbers] if numbers else []

    def lose(self, segment: Segment) -> None:
        """Handle a damaged segment: its files become pending again."""
        for number, part in list(self._parts.items()):
            if part.segment is segment:
                for path in part.paths:
                    code = self._at.get(path)
                    if code is not None and code >> 16 == number:
                        self.mark(path)
                self._drop(number)

    def candidates(self, query: TrigramQuery) -> Candidates:
        """Return the files that may match. Raises Damaged if a segment cannot be read."""
        found = Candidates()
        at = self._at
        for number, part in self._parts.items():
            having = None if query.matches_all else part.segment.having(query)
            paths, kinds, high = part.paths, part.kinds, number << 16
            for local in range(len(paths)) if having is None else having:
                path = paths[local]
                # Large files have no trigrams: they are added below for every query.
                if at.get(path) == high | local and kinds[local] in (TEXT, ALONE):
                    found.add(path, kinds[local])
        for path, kind in self._large.items():
            found.add(path, kind)
        for path, change in self.pending.items():
            judged = self._judged.get(path)
            if judged is None:
                found.unread.append((path, change))
            else:
                found.add(path, judged[0])
        return found

    def close(self) -> None:
        for number in list(self._parts):
            self._drop(number)
