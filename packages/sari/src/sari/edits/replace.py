"""Replaces one definition of a file with another text, using the file's indentation and line endings. Pure: the caller
parses.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from sari.edits.folders import EditRefused
from sari.languages.parse import Symbol

_BOM = b"\xef\xbb\xbf"


def replace_in(
    first_error: Callable[[bytes], int | None], content: bytes, symbols: Sequence[Symbol], symbol: Symbol, text: str
) -> bytes:
    """Return the file with the lines of a definition replaced. Raises `EditRefused` if the result would not parse.

    `first_error` returns the first line of a text with a syntax error.
    """
    mark, body = (_BOM, content[3:]) if content.startswith(_BOM) else (b"", content)
    newline = b"\r\n" if b"\r\n" in body else b"\n"
    rows = body.split(b"\n")
    first, last = symbol.line, symbol.end_line
    _check_alone(symbols, symbol)
    if text.lstrip().startswith("@"):
        # The new text has decorators, so those above the old definition are replaced too.
        while first > 1 and rows[first - 2].lstrip().startswith(b"@"):
            first -= 1
    indent = rows[first - 1][: len(rows[first - 1]) - len(rows[first - 1].lstrip(b" \t"))].decode()
    new = _indented(text, indent).encode().replace(b"\r\n", b"\n").split(b"\n")
    if newline == b"\r\n":
        ends = rows[last - 1].endswith(b"\r")
        new = [row + b"\r" for row in new[:-1]] + [new[-1] + (b"\r" if ends else b"")]
    after = b"\n".join([*rows[: first - 1], *new, *rows[last:]])
    if first_error(body) is None:
        error = first_error(after)
        if error is not None:
            raise EditRefused(f"With this text the file has a syntax error in line {error}. Nothing was changed.")
    return mark + after


def _check_alone(symbols: Sequence[Symbol], symbol: Symbol) -> None:
    """Refuse a definition that shares its first or last line with another one, because complete lines are replaced."""
    for other in symbols:
        if other == symbol:
            continue
        apart = other.end_line < symbol.line or other.line > symbol.end_line
        within = symbol.line <= other.line and other.end_line <= symbol.end_line
        around = other.line < symbol.line and other.end_line >= symbol.end_line
        same_line = other.line == other.end_line == symbol.line == symbol.end_line
        if not (apart or within or around) or same_line:
            raise EditRefused(
                f"{symbol.name} shares line {symbol.line} with {other.name}, so it cannot be replaced by itself."
            )


def _indented(text: str, indent: str) -> str:
    plain = textwrap.dedent(text.strip("\r\n").rstrip())
    return textwrap.indent(plain, indent)
