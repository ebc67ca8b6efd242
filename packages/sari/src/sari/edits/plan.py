"""The changes of an edit: the files before and after, the diff that is shown, and an id for exactly this preview. Pure."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sari.edits.transaction import FileChange

_LONGEST_LINE = 300


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
    rows = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
    return "\n".join(row[:_LONGEST_LINE] for row in rows)


def _rows(content: bytes) -> list[str]:
    return content.decode("utf-8", "backslashreplace").split("\n")
