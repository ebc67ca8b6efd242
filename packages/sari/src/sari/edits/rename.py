"""Finds the identifiers of a name in a file and renames them, by syntax. Pure: the caller parses."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sari.languages.parse import Span

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Renamed:
    """A renamed file. `left` counts the mentions in comments and strings, which are not changed."""

    content: bytes
    count: int
    left: int


def is_name(text: str) -> bool:
    """Whether this has the form of a name in the languages that sari parses."""
    return _IDENTIFIER.fullmatch(text) is not None


def rename_in(
    roles: Callable[[bytes, Sequence[Span]], Sequence[str | None]], content: bytes, name: str, new_name: str
) -> Renamed:
    """Return the file with every identifier of this name renamed. `roles` returns the roles of names in a text."""
    mark, text = (_BOM, content[3:]) if content.startswith(_BOM) else (b"", content)
    wanted = re.compile(rb"(?<![\w$\x80-\xff])" + re.escape(name.encode()) + rb"(?![\w$\x80-\xff])")
    rows = text.split(b"\n")
    places = [
        (number, found.start(), found.end()) for number, row in enumerate(rows) for found in wanted.finditer(row)
    ]
    parts: dict[int, list[bytes]] = {}
    ends: dict[int, int] = {}
    count = left = 0
    for (number, start, end), role in zip(places, roles(text, places), strict=True):
        if role is None:
            left += 1
            continue
        parts.setdefault(number, []).extend((rows[number][ends.get(number, 0) : start], new_name.encode()))
        ends[number] = end
        count += 1
    for number, renamed in parts.items():
        rows[number] = b"".join([*renamed, rows[number][ends[number] :]])
    return Renamed(mark + b"\n".join(rows), count, left)
