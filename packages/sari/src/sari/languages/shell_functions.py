"""Finds the functions of a shell script by its lines, for scripts that the parser does not understand. Pure.

The grammar does not know all of the shell's syntax, and after an error it takes the functions that follow for commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEADER = re.compile(
    rb"([ \t]*)(?:function[ \t]+([\w:.+-]+)(?:[ \t]*\([ \t]*\))?|([A-Za-z_][\w:.+-]*)[ \t]*\([ \t]*\))[ \t]*(?:[{(].*)?$"
)
# Not `<<<`, and not a shift in an arithmetic expression.
_HERE_DOCUMENT = re.compile(rb"(?<![<(\d])<<(-?)[ \t]*[\\'\"]?([A-Za-z_]\w*)")


def functions(text: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield the name and the first and last line of each function."""
    rows = text.split(b"\n")
    number = 0
    while number < len(rows):
        row = rows[number]
        header = _HEADER.match(row)
        if header is not None:
            name = (header[2] or header[3]).decode("utf-8", "replace")
            yield name, number + 1, _end(rows, number, header[1])
        number = _after_here_document(rows, number)


def _end(rows: list[bytes], number: int, indent: bytes) -> int:
    """Return the line of the brace that is indented as the function is."""
    if rows[number].rstrip().endswith((b"}", b")")) and b"{" in rows[number]:
        return number + 1
    for at in range(number + 1, len(rows)):
        if rows[at].startswith((indent + b"}", indent + b")")):
            return at + 1
    return number + 1


def _after_here_document(rows: list[bytes], number: int) -> int:
    """Return the next row that is code."""
    row = rows[number]
    begun = None if row.lstrip().startswith(b"#") else _HERE_DOCUMENT.search(row)
    if begun is not None:
        for at in range(number + 1, len(rows)):
            if (rows[at].lstrip(b"\t") if begun[1] else rows[at]).rstrip(b"\r") == begun[2]:
                return at + 1
    return number + 1
