"""Parses the commits that `git log` prints, and maps lines of an edited file to its committed version. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A message may contain any character but NUL, so NUL separates the fields. With `-z`, names follow until an empty one.
LOG_FORMAT = "--format=%x00%x00%H%x00%ct%x00%an%x00%B%x00"
# Runs no program that the repository names and does not detect renames: both would cost more than they are worth.
LOG_FLAGS = ("-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-show-signature", "--no-color", LOG_FORMAT)

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.M)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit. `paths` are relative to the workspace, and empty if they were not requested."""

    id: str
    time_s: int
    author: str
    message: str
    paths: tuple[str, ...] = ()


def parse_commits(output: bytes) -> Iterator[Commit]:
    """Parse the output of `git log` with `LOG_FLAGS`, with or without `--name-only`. A truncated last record is left
    out.
    """
    fields = output.split(b"\0")
    at = 0
    while True:
        while at < len(fields) and not fields[at]:
            at += 1
        # An empty field ends the message.
        if at + 4 >= len(fields):
            return
        commit_id, time_s, author, message = (_text(one) for one in fields[at : at + 4])
        at += 5
        names: list[str] = []
        if at < len(fields) and fields[at].startswith(b"\n"):
            names.append(_text(fields[at][1:]))
            at += 1
            while at < len(fields) and fields[at]:
                names.append(_text(fields[at]))
                at += 1
        yield Commit(commit_id, int(time_s), author, message.strip("\n"), tuple(names))


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
