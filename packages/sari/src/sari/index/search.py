"""Answers a text query: the index selects candidate files, and ripgrep finds the matches.

Chooses between listing candidates and walking the tree, and limits what is kept in memory. The set of matching lines is
exactly ripgrep's on the same tree. The tools handle order, budget and presentation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sari.index import content, ripgrep, ripgrep_process, trigram_query
from sari.index.segment import LARGE, TEXT
from sari.index.walked_tree import WalkedTree

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Protocol

    from sari.index.table import Candidates

    class Tree(Protocol):
        """The files of one root. `WorkspaceIndex` knows where a query may match; `WalkedTree` does not."""

        @property
        def root(self) -> Path: ...

        def candidates(
            self, query: trigram_query.TrigramQuery, keep: Callable[[bytes], bool] | None = None
        ) -> tuple[Candidates | None, int]: ...


# Up to this many candidate files, lines are fetched immediately; with more, matches are counted first.
_LINES_AT_ONCE = 800
_KEPT_LINES = 40_000
_KEPT_PER_FILE = 2_000
_SHOWN_BYTES = 400
# Well below the 2 MiB that Linux allows for a command line.
_COMMAND_BYTES = 900_000
# For fewer files, starting ripgrep's threads takes longer (2 ms) than they save.
_ONE_THREAD_BELOW = 250


@dataclass(frozen=True, slots=True)
class Query:
    """A query. `case` is smart, sensitive or insensitive; `mode` literal, regex or words."""

    text: str
    mode: str = "literal"
    case: str = "smart"

    def flags(self) -> list[str]:
        """Return the equivalent ripgrep flags."""
        return ripgrep_process.pattern(self.text, self.mode, self.case)

    @property
    def multiline(self) -> bool:
        return ripgrep_process.spans_lines(self.text, self.mode)

    def trigrams(self) -> trigram_query.TrigramQuery:
        return trigram_query.by_regex(self.text) if self.mode == "regex" else trigram_query.by_literal(self.text)


@dataclass(frozen=True, slots=True)
class Hit:
    """One matching line, truncated around the match if it is very long."""

    line: int
    text: str

    @property
    def is_cut(self) -> bool:
        return self.text.startswith("…") or self.text.endswith("…")


@dataclass(slots=True)
class Found:
    """Every matching file with its number of lines, and the lines fetched so far."""

    query: Query
    counts: dict[bytes, int] = field(default_factory=dict)
    hits: dict[bytes, list[Hit]] = field(default_factory=dict)
    # Files that contain a NUL: their lines are fetched one file at a time.
    alone: set[bytes] = field(default_factory=set)
    # Files found by walking the tree: whether they contain a NUL is not known yet.
    walked: set[bytes] = field(default_factory=set)
    kept: int = 0

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def forget_lines(self) -> None:
        """Keep only the counts. Lines are fetched again on request."""
        self.hits.clear()
        self.kept = 0


def search(
    tree: Tree,
    query: Query,
    keep: Callable[[bytes], bool] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[Found, int]:
    """Return all matching files, and the state of the tree that the answer belongs to."""
    where, change = tree.candidates(query.trigrams(), keep)
    found = Found(query)
    if where is None:
        arguments = ripgrep_process.whole_tree(query.text, query.mode, query.case)
        if isinstance(tree, WalkedTree):
            walked = tree.walk(arguments, cancelled)
        else:
            walked = ripgrep.stream(arguments, tree.root, cancelled)
        _collect(found, walked, keep)
        found.walked.update(found.counts)
        return found, change
    _alone(tree, found, where.alone, cancelled, bounded=True)
    if len(where.plain) <= _LINES_AT_ONCE or query.multiline:
        _together(tree, found, where.plain, cancelled, bounded=True)
        return found, change
    for batch in _batches(where.plain):
        output = ripgrep.run([*query.flags(), *ripgrep.COUNTS, *batch], tree.root, cancelled)
        found.counts.update((path.removeprefix(b"./"), count) for path, count in ripgrep.counts(output))
    return found, change


def fetch(tree: Tree, found: Found, paths: Sequence[bytes], cancelled: Callable[[], bool] = lambda: False) -> None:
    """Ensure that all lines of these files are fetched."""
    lacking = [path for path in paths if len(found.hits.get(path, ())) < found.counts[path]]
    for path in lacking:
        found.kept -= len(found.hits.pop(path, ()))
    separate_alone(tree, found, lacking)
    fresh = Found(found.query)
    _alone(tree, fresh, [path for path in lacking if path in found.alone], cancelled, bounded=False)
    _together(tree, fresh, [path for path in lacking if path not in found.alone], cancelled, bounded=False)
    for path in lacking:
        # A file may have changed since it was counted: use its current lines.
        found.hits[path] = fresh.hits.get(path, [])
        found.counts[path] = len(found.hits[path])
        found.kept += found.counts[path]


def separate_alone(tree: Tree, found: Found, paths: Iterable[bytes]) -> None:
    """Determine which of these files contain a NUL."""
    for path in found.walked.intersection(paths):
        if content.kind(os.path.join(os.fsencode(tree.root), path)) not in (TEXT, LARGE):
            found.alone.add(path)
        found.walked.discard(path)


def _together(
    tree: Tree, found: Found, paths: Sequence[bytes], cancelled: Callable[[], bool], *, bounded: bool
) -> None:
    """Return the lines of files without NUL, which are named on the command line."""
    for batch in _batches(paths):
        output = ripgrep.stream([*found.query.flags(), *ripgrep.LINES, *batch], tree.root, cancelled)
        _collect(found, output, None, bounded=bounded)


def _alone(tree: Tree, found: Found, paths: Sequence[bytes], cancelled: Callable[[], bool], *, bounded: bool) -> None:
    """Return the lines of files with a NUL. Where ripgrep stops depends on its buffer, which earlier files may have
    enlarged.

    Each file therefore gets its own ripgrep process, which finds it by walking: that makes it stop at the NUL.
    """
    for path in paths:
        folder = b"./" + path.rpartition(b"/")[0]
        where: list[str | bytes] = [b"--glob=/" + _as_glob(path), "--max-depth", "1", "--", folder]
        output = ripgrep.stream([*found.query.flags(), *ripgrep.LINES, *where], tree.root, cancelled)
        _collect(found, output, path.__eq__, bounded=bounded)
        if path in found.counts:
            found.alone.add(path)


def _collect(
    found: Found, output: Iterable[bytes], keep: Callable[[bytes], bool] | None, *, bounded: bool = True
) -> None:
    last, wanted = b"", True
    hits: list[Hit] = []
    for line in ripgrep.lines(output):
        if line.path != last:
            last = line.path
            path = last.removeprefix(b"./")
            wanted = keep is None or keep(path)
            if wanted:
                hits = found.hits.setdefault(path, [])
                found.counts.setdefault(path, 0)
        if not wanted:
            continue
        path = last.removeprefix(b"./")
        found.counts[path] += 1
        if not bounded or (len(hits) < _KEPT_PER_FILE and found.kept < _KEPT_LINES):
            hits.append(Hit(line.number, _shown(line)))
            found.kept += 1


def _shown(line: ripgrep.Line) -> str:
    text = line.text.removesuffix(b"\r")
    if len(text) <= _SHOWN_BYTES:
        return text.decode("utf-8", "replace")
    start = max(0, min(line.column - 1 - _SHOWN_BYTES // 4, len(text) - _SHOWN_BYTES))
    piece = text[start : start + _SHOWN_BYTES].decode("utf-8", "replace").strip("\ufffd")
    return f"{'…' if start else ''}{piece}{'…' if start + _SHOWN_BYTES < len(text) else ''}"


def _batches(paths: Iterable[bytes]) -> Iterator[list[str | bytes]]:
    """Yield command lines within the length limit. `./` prevents a name from being read as a flag."""
    batch: list[bytes] = []
    size = 0
    for path in paths:
        batch.append(b"./" + path)
        size += len(path) + 12
        if size > _COMMAND_BYTES:
            yield _command(batch)
            batch, size = [], 0
    if batch:
        yield _command(batch)


def _command(batch: list[bytes]) -> list[str | bytes]:
    threads = ["--threads=1"] if len(batch) < _ONE_THREAD_BELOW else []
    # A named file is searched even if it is ignored. Without the flag, ripgrep would read the rules of all folders
    # above it.
    return [*threads, "--no-ignore", "--no-mmap", "--", *batch]


_GLOB_SPECIAL = re.compile(r"[\\*?\[\]{}!#]")


def _as_glob(path: bytes) -> bytes:
    """Return a glob for this one path. It may match more if a name is not UTF-8, so the caller filters the results."""
    text = path.decode("utf-8", "replace")
    glob = _GLOB_SPECIAL.sub(r"\\\g<0>", text).replace("\ufffd", "*")
    # Trailing blanks would be trimmed.
    return (f"{glob[:-1]}[{glob[-1]}]" if glob[-1].isspace() else glob).encode()
