"""Finds the functions of a shell script by its lines, for scripts that the parser does not understand. Pure.

The grammar does not know all of the shell's syntax, and after an error it takes the functions that follow for commands.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

_HEADER = re.compile(
    rb"([ \t]*)(?:function[ \t]+([\w:.+-]+)(?:[ \t]*\([ \t]*\))?|([A-Za-z_][\w:.+-]*)[ \t]*\([ \t]*\))[ \t]*(?:[{(].*)?$"
)
# Not `<<<`, and not a shift in an arithmetic expression.
_HERE_DOCUMENT = re.compile(rb"(?<![<(\d])<<(-?)[ \t]*[\\'\"]?([A-Za-z_]\w*)")


# A row that could end a here document, and one that could end a function.
_DELIMITER = re.compile(rb"(\t*)([A-Za-z_]\w*)\r?$")
_CLOSING = re.compile(rb"([ \t]*)[})]")


def functions(text: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield the name and the first and last line of each function. Takes time in proportion to the text, whatever it is."""
    rows = text.split(b"\n")
    closings, delimiters, indented = _ends(rows)
    number = 0
    while number < len(rows):
        row = rows[number]
        header = _HEADER.match(row)
        if header is not None:
            name = (header[2] or header[3]).decode("utf-8", "replace")
            is_one_line = row.rstrip().endswith((b"}", b")")) and b"{" in row
            end = number if is_one_line else _next(closings, header[1], number, number)
            yield name, number + 1, end + 1
        begun = None if row.lstrip().startswith(b"#") else _HERE_DOCUMENT.search(row)
        if begun is not None:
            number = _next(indented if begun[1] else delimiters, begun[2], number, number)
        number += 1


_Rows = dict[bytes, list[int]]


def _ends(rows: list[bytes]) -> tuple[_Rows, _Rows, _Rows]:
    """Return the rows with a closing brace by their indentation, and the delimiters by name: not indented, and all."""
    closings: _Rows = defaultdict(list)
    delimiters: _Rows = defaultdict(list)
    indented: _Rows = defaultdict(list)
    for number, row in enumerate(rows):
        if closing := _CLOSING.match(row):
            closings[closing[1]].append(number)
        elif delimiter := _DELIMITER.match(row):
            indented[delimiter[2]].append(number)
            if not delimiter[1]:
                delimiters[delimiter[2]].append(number)
    return closings, delimiters, indented


def _next(places: _Rows, key: bytes, after: int, default: int) -> int:
    """Return the first of these rows after this one. A brace closes the function that is indented as it is."""
    found = places.get(key, ())
    at = bisect_right(found, after)
    return found[at] if at < len(found) else default
