"""Parses the commits that `git log` prints, and maps lines of an edited file to its committed version. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

# A message may contain any character but NUL, so NUL separates the fields. With `-z`, names follow until an empty one.
LOG_FORMAT = "--format=%x00%x00%H%x00%ct%x00%an%x00%B%x00"
# Runs no program that the repository names and does not detect renames: both would cost more than they are worth.
LOG_FLAGS = ("-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-show-signature", "--no-color", LOG_FORMAT)

# A message can have any size, and a commit any number of files.
_LONGEST_FIELD = 64 << 10
_MOST_NAME_BYTES = 4 << 20
_NAME_OVERHEAD = 60
# The last second of the year 9999.
_LATEST_S = 253_402_300_799

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.M)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit. `paths` are relative to the workspace, and empty if they were not requested."""

    id: str
    time_s: int
    author: str
    message: str
    paths: tuple[str, ...] = ()


def parse_commits(output: Iterable[bytes]) -> Iterator[Commit]:
    """Parse the output of `git log` with `LOG_FLAGS` as it arrives, with or without `--name-only`. A truncated last record
    is left out. Of a message, and of the names of a commit, only the beginning is kept.
    """
    fields = _fields(output)
    following = next(fields, None)
    while following is not None:
        if not following:
            following = next(fields, None)
            continue
        # An empty field ends the message.
        record = [following, *islice(fields, 4)]
        if len(record) < 5:
            return
        commit_id, time_s, author, message = (_text(one) for one in record[:4])
        following = next(fields, None)
        names: list[str] = []
        if following is not None and following.startswith(b"\n"):
            left = _MOST_NAME_BYTES
            name: bytes | None = following[1:]
            while name:
                left -= len(name) + _NAME_OVERHEAD
                if left > 0:
                    names.append(_text(name))
                name = next(fields, None)
            following = name
        yield Commit(commit_id, _time(time_s), author, message.strip("\n"), tuple(names))


def _fields(output: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the beginnings of the fields that NULs separate."""
    field = bytearray()
    for chunk in output:
        at = 0
        while (end := chunk.find(b"\0", at)) >= 0:
            field += chunk[at : min(end, at + _LONGEST_FIELD - len(field))]
            yield bytes(field)
            field.clear()
            at = end + 1
        field += chunk[at : at + _LONGEST_FIELD - len(field)]
    yield bytes(field)


def _time(text: str) -> int:
    """Return a commit's time, which can be any number, as one that can be shown."""
    return min(int(text), _LATEST_S) if text.isdigit() else 0


def _text(field: bytes) -> str:
    return field.decode("utf-8", "backslashreplace")


def committed_lines(diff: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Return where lines `start` to `end` of a file are in its committed version; None if none of them is committed.

    `diff` is `git diff -U0` from the committed version to the file.
    """
    first: int | None = None
    last = 0
    for new_from, new_to, shift in _unchanged(diff):
        low, high = max(start, new_from), min(end, new_to)
        if low <= high:
            first = low - shift if first is None else first
            last = high - shift
    for old_from, old_to, new_from, new_to in _changed(diff):
        # Changed lines count as the lines they replace.
        if old_from <= old_to and new_from <= end and new_to >= start:
            first = old_from if first is None else min(first, old_from)
            last = max(last, old_to)
    return None if first is None else (first, last)


def _changed(diff: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield the first and last line of each change, before and after. An empty range has its last line below its first."""
    for hunk in _HUNK.finditer(diff):
        old, old_count, new, new_count = (int(group) if group is not None else 1 for group in hunk.groups())
        # For an empty range, git names the line before it.
        old_from = old if old_count else old + 1
        new_from = new if new_count else new + 1
        yield old_from, old_from + old_count - 1, new_from, new_from + new_count - 1


def _unchanged(diff: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the unchanged lines of the file, and their offset from the committed version."""
    begin, shift = 1, 0
    for _, old_to, new_from, new_to in _changed(diff):
        yield begin, new_from - 1, shift
        begin, shift = new_to + 1, new_to - old_to
    yield begin, 1 << 60, shift
