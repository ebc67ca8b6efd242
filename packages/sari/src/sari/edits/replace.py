"""Replaces one definition of a file with another text, using the file's indentation and line endings. Pure except for
parsing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from sari.edits.folders import EditRefused
from sari.languages.catalog import Language
from sari.languages.parse import Symbol, tree_of

_BOM = b"\xef\xbb\xbf"


def replace_in(language: Language, content: bytes, symbols: Sequence[Symbol], symbol: Symbol, text: str) -> bytes:
    """Return the file with the lines of a definition replaced. Raises `EditRefused` if the result would not parse."""
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
    if not tree_of(language, body).root_node.has_error:
        error = _first_error(language, after)
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


def _first_error(language: Language, text: bytes) -> int | None:
    tree = tree_of(language, text)
    if not tree.root_node.has_error:
        return None
    waiting = [tree.root_node]
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            return int(node.start_point[0]) + 1
        waiting.extend(child for child in reversed(node.children) if child.has_error)
    return 1
