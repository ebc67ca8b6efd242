"""Finds the identifiers of a name in a file and renames them, by syntax. Pure except for parsing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sari.languages.catalog import Language
from sari.languages.parse import role_at, tree_of

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


def rename_in(language: Language, content: bytes, name: str, new_name: str) -> Renamed:
    """Return the file with every identifier of this name renamed."""
    mark, text = (_BOM, content[3:]) if content.startswith(_BOM) else (b"", content)
    wanted = re.compile(rb"(?<![\w$\x80-\xff])" + re.escape(name.encode()) + rb"(?![\w$\x80-\xff])")
    tree = tree_of(language, text)
    count = left = 0
    rows = text.split(b"\n")
    for number, row in enumerate(rows):
        parts: list[bytes] = []
        at = 0
        for found in wanted.finditer(row):
            if role_at(tree, number, found.start(), found.end()) is None:
                left += 1
                continue
            parts += [row[at : found.start()], new_name.encode()]
            at = found.end()
            count += 1
        if parts:
            rows[number] = b"".join([*parts, row[at:]])
    return Renamed(mark + b"\n".join(rows), count, left)
