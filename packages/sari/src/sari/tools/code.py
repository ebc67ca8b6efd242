"""The tools that use syntax: `symbols`, `references`, `callers`, `implementations`.

They match by name, or by type if a language server has such an answer ready (`by` says which).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from sari.index import ripgrep
from sari.index.search import Query, fetch, search
from sari.languages import catalog
from sari.languages.parse import MAX_PARSED_BYTES, Symbol
from sari.languages.read import read_text
from sari.languages.store import Placed
from sari.protocol.catalog import KINDS
from sari.protocol.tooling import Call, ToolResult
from sari.tools.arguments import Arguments, BadArguments
from sari.tools.definitions import MOST_SYMBOLS, PARTIAL, qualifier_ranks, unparsed_note
from sari.tools.paging import DEFAULT_TOKENS, Key, Page, is_cursor_of, read_cursor, take_page, write_cursor
from sari.tools.qualified_names import split_name
from sari.tools.scope import Scope, path_filter, path_tier, shown
from sari.tools.typed import begin_typed, implementation_rows, spans_of, typed_note, use_rows

_BY_SYNTAX = "By syntax, not by types: other things of the same name are among them."
_SCOPES = frozenset({"class", "struct", "interface", "trait", "impl", "function", "method", "constructor", "module"})
_MOST_FILES = 400
# A page is returned once it is full and so many files are parsed (5 ms each): `get` is used in thousands of files.
_FILES_AT_ONCE = 50
_Use = tuple[Key, dict[str, object]]
_NAME = re.compile(r"[^\W\d][\w$]*[?!]?|[$_][\w$]*")


def answer_symbols(scope: Scope, arguments: Arguments) -> ToolResult:
    query = arguments.text("query").strip().removesuffix("()")
    if not query:
        raise BadArguments("`query` is empty. Give a name or a part of it; `outline` lists a file's symbols.")
    kinds = {_kind(kind) for kind in arguments.names("kind")}
    keep = path_filter(scope.root, (), arguments.names("languages"))
    limit = arguments.number("limit", 50)
    qualifier, name = split_name(query)
    placed, complete = scope.symbols.named(name, 20_000)
    notes = [] if complete else [PARTIAL]
    unparsed = unparsed_note(shown(path) for path in scope.symbols.failed_with(name) if keep is None or keep(path))
    if unparsed:
        complete = False
        notes.append(unparsed)
    named = [one for one in placed if (not kinds or one.symbol.kind in kinds) and (keep is None or keep(one.path))]
    ranks = qualifier_ranks(scope, qualifier, name, named)
    chosen = [one for one in named if ranks[one] is not None]
    if named and not chosen:
        # sari cannot follow every qualifier (an alias, a re-export), so show the symbols that share the last part.
        chosen = named
        notes.append(f"None of these is known as {query!r}: they only share its last part.")
    elif qualifier:
        # Someone who qualifies a name knows it: its parts (`New` in `NewEncoder`) would only cost tokens.
        chosen = [one for one in chosen if one.symbol.name == name] or chosen
    chosen.sort(key=lambda one: (_distance(one.symbol.name, name), ranks[one] or 0, path_tier(shown(one.path))))
    return _listed("symbols", chosen, limit, complete, " ".join(notes), f"No symbol's name holds {name!r}.")


def _kind(kind: str) -> str:
    folded = (
        kind.strip()
        .lower()
        .removesuffix("es" if kind.lower().endswith("classes") else "s" if kind.lower() != "class" else "")
    )
    if folded not in KINDS:
        raise BadArguments(f"`kind` must be among {', '.join(KINDS)}; not {kind!r}.")
    return folded


def _distance(found: str, wanted: str) -> int:
    if found == wanted:
        return 0
    if found.lower() == wanted.lower():
        return 1
    return 2 if found.lower().startswith(wanted.lower()) else 3


def as_data(placed: Placed) -> dict[str, object]:
    symbol = placed.symbol
    return {
        "name": symbol.name,
        "kind": symbol.kind,
        "path": shown(placed.path),
        "line": symbol.line,
        "end_line": symbol.end_line,
        "container": symbol.container,
    }


def _listed(key: str, chosen: list[Placed], limit: int, complete: bool, note: str, nothing: str) -> ToolResult:
    rows = [as_data(one) for one in chosen[:limit]]
    notes = [note] if note else []
    if len(chosen) > limit:
        notes.append(f"{limit} of {len(chosen)} are shown; raise `limit` or narrow the query.")
    structured: dict[str, object] = {key: rows, "total": len(chosen), "complete": complete and len(chosen) <= limit}
    if notes:
        structured["note"] = " ".join(notes)
    text = [f"{row['path']}:{row['line']}-{row['end_line']} {row['kind']} {_dotted(row)}" for row in rows]
    return ToolResult("\n".join([*(text or [nothing]), *notes]), structured)


def _dotted(row: dict[str, object]) -> str:
    return f"{row['container']}.{row['name']}" if row["container"] else str(row["name"])


def answer_implementations(scope: Scope, arguments: Arguments) -> ToolResult:
    name = _name(arguments)
    given = arguments.text("name").strip()
    pending = begin_typed(scope, "implementations", given)
    types, complete = scope.symbols.extending(name, MOST_SYMBOLS)
    again, also = scope.symbols.exactly(name, MOST_SYMBOLS)
    methods = [one for one in again if one.symbol.kind in ("method", "constructor")]
    rows = sorted(
        [((0, shown(one.path), one.symbol.line), as_data(one)) for one in types]
        + [((1, shown(one.path), one.symbol.line), as_data(one)) for one in methods],
        key=lambda row: row[0],
    )
    complete = complete and also
    note = _BY_SYNTAX if complete else f"{_BY_SYNTAX} {PARTIAL}"
    unparsed = unparsed_note(map(shown, scope.symbols.failed_with(name)))
    if unparsed:
        complete, note = False, f"{note} {unparsed}"
    query = f"implementations {given}"
    typed = pending.take() if is_cursor_of(arguments.text("cursor"), f"{query} by types") else None
    by = "syntax"
    if typed is not None:
        by, query = "types", f"{query} by types"
        rows, unknown = implementation_rows(scope, typed, as_data)
        complete, note = typed_note(scope, typed, name, unknown)
    else:
        note = f"{note} {pending.why_not()}".strip()
    page = take_page(rows, query, read_cursor(arguments.text("cursor"), query), _budget(arguments))
    found = [(str(row["path"]), f"{row['line']}-{row['end_line']} {row['kind']} {_dotted(row)}") for row in page.rows]
    lines = [f"{path}:{definition}" for path, definition in found]
    by_file: list[dict[str, object]] = [
        {"path": path, "symbols": [definition for _, definition in some]}
        for path, some in groupby(found, itemgetter(0))
    ]
    nothing = f"Nothing extends or implements {name!r}, and no method has that name."
    return _paged("implementations", by_file, page, lines, len(rows), complete, note, nothing, by)


def answer_references(scope: Scope, arguments: Arguments, call: Call) -> ToolResult:
    name = _name(arguments)
    within = arguments.text("path")
    folder = os.fsencode(scope.path(within)) if within else b"."
    nothing = f"{name!r} is used nowhere in code. `search` also looks into comments."
    return _answer_uses("references", scope, arguments, name, folder, nothing, call)


def answer_callers(scope: Scope, arguments: Arguments, call: Call) -> ToolResult:
    name = _name(arguments)
    nothing = f"{name!r} is called nowhere. `references` lists its other uses."
    return _answer_uses("callers", scope, arguments, name, b".", nothing, call)


def _name(arguments: Arguments) -> str:
    given = arguments.text("name").strip().removesuffix("()")
    _, name = split_name(given)
    if not _NAME.fullmatch(name):
        raise BadArguments(
            f"`name` must be one identifier, e.g. open_file; not {given!r}. For free text use `search`."
        )
    return name


def _budget(arguments: Arguments) -> int:
    return arguments.number("max_tokens", DEFAULT_TOKENS)


def _paged(
    key: str,
    by_file: list[dict[str, object]],
    page: Page,
    lines: list[str],
    total: int | None,
    complete: bool,
    note: str,
    nothing: str,
    by: str,
) -> ToolResult:
    """Make an answer of a page: the lines as text, and the same by file as data, which is no longer than the text."""
    structured: dict[str, object] = {key: by_file, "by": by, "complete": complete, "cursor": page.cursor}
    if total is not None:
        structured["total"] = total
    if page.cursor is not None:
        of = f" of {total}" if total is not None else ""
        note = f"{len(page.rows)}{of} are shown; pass `cursor` for more. {note}"
    structured["note"] = note
    more = [f"cursor: {page.cursor}"] if page.cursor is not None else []
    return ToolResult("\n".join([*(lines or [nothing]), note, *more]), structured)


def _answer_uses(
    key: str, scope: Scope, arguments: Arguments, name: str, folder: bytes, nothing: str, call: Call
) -> ToolResult:
    given = arguments.text("name").strip()
    pending = begin_typed(scope, "references", given)
    query = f"{key} {given} {shown(folder)}"
    typed_query = f"{query} by types"
    first = arguments.text("cursor")
    wants_types = is_cursor_of(first, typed_query)
    typed = pending.take() if wants_types else None
    if typed is None and is_cursor_of(first, query):
        after = read_cursor(first, query)
        uses, rest, unparsed = _uses(
            scope,
            name,
            folder,
            after,
            call,
            calls_only=key == "callers",
            fills_page=lambda some: take_page(some, query, after, _budget(arguments)).cursor is not None,
        )
        # It may have become ready meanwhile.
        typed = pending.take() if wants_types else None
    if typed is not None:
        rows, unknown = use_rows(scope, typed, name, shown(folder), _around, calls_only=key == "callers")
        page = take_page(rows, typed_query, read_cursor(first, typed_query), _budget(arguments))
        complete, note = typed_note(scope, typed, name, unknown)
        return _paged(key, *_uses_shown(page), len(rows), complete, note, nothing, "types")
    if not is_cursor_of(first, query):
        raise BadArguments("`cursor` belongs to an answer that is no longer there. Leave it out to begin again.")
    page = take_page(uses, query, after, _budget(arguments))
    if page.cursor is None and rest is not None:
        # These files are done. The files after them are parsed for the next page.
        page = Page(page.rows, write_cursor(query, rest))
    total = len(uses) if after is None and rest is None else None
    note = f"{_BY_SYNTAX} {pending.why_not()}".strip()
    if unparsed:
        note += f" {unparsed_note(unparsed)}"
    return _paged(key, *_uses_shown(page), total, not unparsed, note, nothing, "syntax")


def _uses_shown(page: Page) -> tuple[list[dict[str, object]], Page, list[str]]:
    """Return the uses by file, for each line's number its text; and the same as lines of text."""
    rows = [
        (
            str(use["path"]),
            str(use["line"]),
            str(use["text"]) + (f"   [in {use['container']}]" if use.get("container") else ""),
        )
        for use in page.rows
    ]
    by_file: list[dict[str, object]] = [
        {"path": path, "lines": {line: text for _, line, text in some}} for path, some in groupby(rows, itemgetter(0))
    ]
    return by_file, page, [":".join(row) for row in rows]


def _uses(
    scope: Scope,
    name: str,
    folder: bytes,
    after: Key | None,
    call: Call,
    *,
    calls_only: bool,
    fills_page: Callable[[list[_Use]], bool],
) -> tuple[list[_Use], Key | None, list[str]]:
    """Return the uses of the name in code, files in order of interest, starting at a cursor's file.

    Files are parsed until the uses fill a page, or all are. Also returns where to continue in the first case, and the
    files that are too large to parse.
    """

    def keep(path: bytes) -> bool:
        below = folder == b"." or path == folder or path.startswith(folder + b"/")
        return below and catalog.of_path(os.fsdecode(path)) is not None

    found, _ = search(scope.index, Query(name, "words", "sensitive"), keep, lambda: call.cancelled)
    paths = sorted((path_tier(shown(path)), shown(path), path) for path in found.counts)
    if after is not None:
        paths = [one for one in paths if one[:2] >= after[:2]]
    chosen = paths[:_MOST_FILES]
    fetch(scope.index, found, [path for _, _, path in chosen], lambda: call.cancelled)
    uses: list[_Use] = []
    unparsed: list[str] = []
    last: tuple[int, str, bytes] | None = chosen[-1] if len(paths) > len(chosen) else None
    for done, (tier, text, path) in enumerate(chosen):
        if call.cancelled:
            raise ripgrep.Cancelled
        if done % _FILES_AT_ONCE == 0 and done:
            call.progress(done, len(chosen), "files parsed")
            if fills_page(uses):
                last = chosen[done - 1]
                break
        some = _uses_in(scope, path, name, {hit.line for hit in found.hits[path]})
        if some is None:
            unparsed.append(text)
        else:
            uses.extend(((tier, text, line), use) for line, use in some if not calls_only or use["role"] == "call")
    return uses, (last[0], last[1], sys.maxsize) if last is not None else None, unparsed


def _uses_in(scope: Scope, path: bytes, name: str, lines: set[int]) -> list[tuple[int, dict[str, object]]] | None:
    """Return the lines of a file on which the name is code; None if the file cannot be parsed."""
    read = read_text(os.fsencode(scope.root), path, MAX_PARSED_BYTES)
    if read is None:
        return None if os.path.exists(os.path.join(os.fsencode(scope.root), path)) else []
    language = catalog.of_file(os.fsdecode(path), read[0])
    if language is None:
        return []
    symbols = scope.symbols.of_file(path)
    if symbols is None:
        return None
    rows = read[0].split(b"\n")
    spans = spans_of(name, rows, sorted(lines))
    known = scope.symbols.roles(language, read[0], spans)
    if known is None:
        return None
    of_line: dict[int, set[str]] = {}
    for (row, _, _), one in zip(spans, known, strict=True):
        if one is not None:
            of_line.setdefault(row + 1, set()).add(one)
    uses: list[tuple[int, dict[str, object]]] = []
    containers = _around(symbols, lines, name)
    for line, roles in of_line.items():
        role = "call" if "call" in roles else min(roles)
        use: dict[str, object] = {
            "path": shown(path),
            "line": line,
            "text": rows[line - 1][:300].decode("utf-8", "replace").strip(),
            "role": role,
        }
        if line in containers:
            use["container"] = containers[line]
        uses.append((line, use))
    return uses


def _around(symbols: Sequence[Symbol], lines: Iterable[int], name: str) -> dict[int, str]:
    """Return the innermost definition that contains each line, other than that of the name itself. In one pass: a file can
    have 100,000 definitions, and a use on each line.
    """
    waiting = sorted((one for one in symbols if one.kind in _SCOPES), key=lambda one: one.line)[::-1]
    begun: list[Symbol] = []
    found: dict[int, str] = {}
    for line in sorted(set(lines)):
        while waiting and waiting[-1].line <= line:
            begun.append(waiting.pop())
        itself: list[Symbol] = []
        while begun and (begun[-1].end_line < line or (begun[-1].line == line and begun[-1].name == name)):
            one = begun.pop()
            if one.end_line > line:
                itself.append(one)
        if begun:
            inner = begun[-1]
            found[line] = f"{inner.container}.{inner.name}" if inner.container else inner.name
        begun.extend(reversed(itself))
    return found
