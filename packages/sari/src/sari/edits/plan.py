"""The changes of an edit: the files before and after, the diff that is shown, and an id for exactly this preview. Pure."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from sari.edits.transaction import FileChange

_LONGEST_LINE = 300
# Difflib takes cubic time for files in which few lines repeat often: 4,000 lines take 5 s, 8,000 over a minute.
_MOST_COMPARED = 2_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes of one call. `about` is shown with them: counts and notes."""

    changes: tuple[FileChange, ...]
    about: Mapping[str, object]
    notes: tuple[str, ...] = ()


def request_digest(tool: str, arguments: Mapping[str, object]) -> str:
    """Return an id for the request, the same whether it is previewed or applied."""
    named = sorted(
        (name, repr(value)) for name, value in arguments.items() if name not in ("apply", "preview", "key")
    )
    return _digest(tool, *(part for pair in named for part in pair))


def preview_id(root: str, request: str, changes: Sequence[FileChange]) -> str:
    """Return an id for this preview. It changes as soon as any of its files or its changes differ."""
    hashed = hashlib.sha256(f"{root}\0{request}".encode("utf-8", "surrogateescape"))
    for change in sorted(changes, key=lambda one: one.path):
        for part in (change.path, change.before, change.after):
            hashed.update(len(part).to_bytes(8, "big") + part)
    return hashed.hexdigest()[:16]


def journal_key(root: str, key: str) -> str:
    """Return the name of the journal for a key in a workspace."""
    return _digest(root, key)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def diff_of(change: FileChange) -> str:
    """Return a file's change as a unified diff without its header."""
    before, after = (_rows(one) for one in (change.before, change.after))
    if max(len(before), len(after)) <= _MOST_COMPARED:
        rows = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
    else:
        rows = list(_hunks(before, after))
    return "\n".join(row[:_LONGEST_LINE] for row in rows)


def _hunks(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield a diff in linear time: line by line if there are as many lines (as after a rename), else from the first line
    that differs to the last.
    """
    if len(before) == len(after):
        different = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        for _, run in groupby(enumerate(different), key=lambda one: one[1] - one[0]):
            lines = [at for _, at in run]
            yield from _hunk(before, after, lines[0], lines[-1] + 1, lines[-1] + 1)
        return
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    same = next((at for at in range(shorter - start) if before[-1 - at] != after[-1 - at]), shorter - start)
    yield from _hunk(before, after, start, len(before) - same, len(after) - same)


def _hunk(before: Sequence[str], after: Sequence[str], start: int, old_end: int, new_end: int) -> Iterator[str]:
    yield f"@@ -{start + 1},{old_end - start} +{start + 1},{new_end - start} @@"
    yield from (f"-{row}" for row in before[start:old_end])
    yield from (f"+{row}" for row in after[start:new_end])


def _rows(content: bytes) -> list[str]:
    return content.decode("utf-8", "backslashreplace").split("\n")
