"""The `read` and `outline` tools: a file's lines with their numbers, and its definitions."""

from __future__ import annotations

import os

from sari.languages import catalog
from sari.languages.parse import Symbol
from sari.languages.read import read_text
from sari.protocol.tooling import ToolResult
from sari.tools.arguments import Arguments, BadArguments
from sari.tools.scope import Scope, shown

_DEFAULT_LINES = 400
_MOST_BYTES = 60_000
_MOST_LINE = 2_000


def answer_read(scope: Scope, arguments: Arguments) -> ToolResult:
    path = scope.file(arguments.text("path"))
    read = read_text(os.fsencode(scope.root), path)
    if read is None:
        raise BadArguments(f"{shown(path)} cannot be read: it is too large or not a regular file.")
    data = read[0]
    if b"\0" in data[:8192]:
        raise BadArguments(f"{shown(path)} is binary and has no lines to read.")
    rows = data.split(b"\n")
    if rows and not rows[-1]:
        rows.pop()
    start, end = _range(scope, arguments, path, len(rows))
    shown_rows: list[str] = []
    size = 0
    for number in range(start, end + 1):
        row = _line(rows[number - 1])
        size += len(row) + 7
        if size > _MOST_BYTES and shown_rows:
            end = number - 1
            break
        shown_rows.append(f"{number:>6}\t{row}")
    text = "\n".join(shown_rows)
    structured: dict[str, object] = {
        "path": shown(path),
        "start": start,
        "end": end,
        "text": text,
        "total_lines": len(rows),
        "complete": end >= len(rows) or arguments.optional("end") == end or bool(arguments.text("symbol")),
    }
    if not rows:
        return ToolResult(f"{shown(path)} is empty.", structured)
    note = ""
    if not structured["complete"]:
        note = f"\n{shown(path)} goes on to line {len(rows)}: call again with start {end + 1}."
        structured["note"] = note.strip()
    return ToolResult(text + note, structured)


def _line(row: bytes) -> str:
    text = row.decode("utf-8", "replace").rstrip("\r")
    return text if len(text) <= _MOST_LINE else text[:_MOST_LINE] + f"… ({len(text)} characters)"


def _range(scope: Scope, arguments: Arguments, path: bytes, total: int) -> tuple[int, int]:
    symbol = arguments.text("symbol").strip()
    if symbol:
        symbols = scope.symbols.of_file(path)
        if symbols is None:
            raise BadArguments(
                f"{shown(path)} cannot be parsed. Find `{symbol}` with `search`, and read it by `start`."
            )
        found = find_symbol(symbols, symbol)
        if found is None:
            names = ", ".join(s.name for s in symbols[:20])
            raise BadArguments(
                f"{shown(path)} defines no `{symbol}`. It defines: {names or 'nothing sari can parse'}."
            )
        return found.line, min(found.end_line, total)
    start = arguments.number("start", 1)
    if start > max(total, 1):
        raise BadArguments(f"{shown(path)} has {total} lines; `start` {start} is behind its end.")
    wanted = arguments.optional("end")
    if wanted is not None and wanted < start:
        raise BadArguments(f"`end` {wanted} is before `start` {start}. Lines count from 1, both ends included.")
    return start, min(wanted if wanted is not None else start + _DEFAULT_LINES - 1, total)


def find_symbol(symbols: list[Symbol], wanted: str) -> Symbol | None:
    """Return the first of a file's symbols that matches a name or a `Class.name`."""
    container, _, name = wanted.replace("::", ".").replace("#", ".").rpartition(".")
    for symbol in symbols:
        if symbol.name == name and (
            not container or (symbol.container or "").split(".")[-1] == container.split(".")[-1]
        ):
            return symbol
    return None


def answer_outline(scope: Scope, arguments: Arguments) -> ToolResult:
    path = scope.file(arguments.text("path"))
    language = catalog.of_path(shown(path))
    if language is None:
        known = ", ".join(one.name for one in catalog.ALL)
        raise BadArguments(f"{shown(path)} is not in a language that sari parses ({known}). Use `read`.")
    symbols = scope.symbols.of_file(path)
    rows = _rows(symbols or [])
    structured: dict[str, object] = {
        "path": shown(path),
        "language": language.name,
        "symbols": rows,
        "complete": symbols is not None,
    }
    if symbols is None:
        structured["note"] = (
            "The file cannot be parsed: it is over 4 MiB, or the parser failed. Use `search` and `read`."
        )
    nothing = structured.get("note", f"{shown(path)} defines nothing sari can see.")
    text = "\n".join([f"{shown(path)} ({language.name})", *rows])
    return ToolResult(text if symbols else str(nothing), structured)


def _rows(symbols: list[Symbol]) -> list[str]:
    """Return a row for each definition, such as `12-30 class Store`, indented by a space for each enclosing definition."""
    rows: list[str] = []
    around: list[int] = []
    for symbol in sorted(symbols, key=lambda s: (s.line, -s.end_line)):
        while around and around[-1] < symbol.end_line:
            around.pop()
        lines = f"{symbol.line}-{symbol.end_line}" if symbol.end_line > symbol.line else f"{symbol.line}"
        rows.append(f"{' ' * len(around)}{lines} {symbol.kind} {symbol.name}")
        if symbol.end_line > symbol.line:
            around.append(symbol.end_line)
    return rows
