"""Type-based answers for the tools that use syntax: converts names to places, and a server's places to rows."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from sari.index.search import Query, search
from sari.languages import catalog
from sari.languages.parse import MAX_PARSED_BYTES, Span, Symbol
from sari.languages.read import read_text
from sari.languages.store import Placed
from sari.lsp.session import NoTypes, Place
from sari.lsp.typed import Pending, Typed
from sari.tools.definitions import placed_named, unparsed_note
from sari.tools.paging import Key
from sari.tools.qualified_names import split_name
from sari.tools.scope import Scope, path_tier, shown

_HEAD_LINES = 20
_LONGEST_TEXT = 300

Around = Callable[[Sequence[Symbol], Iterable[int], str], dict[int, str]]
Rows = list[tuple[Key, dict[str, object]]]


def begin_typed(scope: Scope, kind: str, given: str) -> Pending:
    """Start preparing the type-based answer while the syntax-based one is computed."""
    _, name = split_name(given.removesuffix("()"))
    return scope.types.begin(
        kind,
        given,
        scope.index.change(),
        lambda: _definitions(scope, given),
        lambda languages: _holding(scope, name, languages),
    )


def _holding(scope: Scope, name: str, languages: frozenset[str]) -> list[str]:
    def keep(path: bytes) -> bool:
        language = catalog.of_path(os.fsdecode(path))
        return language is not None and language.name in languages

    found, _ = search(scope.index, Query(name, "words", "sensitive"), keep, lambda: False)
    return sorted(os.fsdecode(path) for path in found.counts)


def _definitions(scope: Scope, given: str) -> list[Place]:
    """Return where the name is defined. Raises `NoTypes` if not all definitions are known: the server would only be asked
    for the uses of the others.
    """
    placed, complete = placed_named(scope, given)
    if not complete:
        raise NoTypes("not every file is parsed yet")
    found = []
    for one in placed:
        place = _place_of(scope, one)
        if place is not None:
            found.append(place)
    return found


def _place_of(scope: Scope, placed: Placed) -> Place | None:
    """Return the position of the name in its definition: after decorators, types and modifiers."""
    read = read_text(os.fsencode(scope.root), placed.path, MAX_PARSED_BYTES)
    if read is None:
        return None
    language = catalog.of_file(os.fsdecode(placed.path), read[0])
    if language is None:
        return None
    rows = read[0].split(b"\n")
    last = min(placed.symbol.end_line, placed.symbol.line + _HEAD_LINES)
    spans = spans_of(placed.symbol.name, rows, range(placed.symbol.line, last + 1))
    roles = scope.symbols.roles(language, read[0], spans)
    if roles is None:
        raise NoTypes(f"{shown(placed.path)} cannot be parsed")
    of_code = [span for span, role in zip(spans, roles, strict=True) if role is not None]
    definitions = [span for span, role in zip(spans, roles, strict=True) if role == "definition"]
    if not of_code:
        return None
    row, start, _ = (definitions or of_code)[0]
    column = len(rows[row][:start].decode("utf-8", "replace").encode("utf-16-le")) // 2
    return Place(os.fsdecode(placed.path), row + 1, column)


def spans_of(name: str, rows: Sequence[bytes], lines: Iterable[int]) -> list[Span]:
    """Return where a name is in these lines of a file, which count from 1."""
    wanted = re.compile(rb"(?<![\w$])" + re.escape(name.encode()) + rb"(?![\w$])")
    return [
        (line - 1, found.start(), found.end())
        for line in lines
        if line <= len(rows)
        for found in wanted.finditer(rows[line - 1])
    ]


def typed_note(scope: Scope, typed: Typed, name: str, unknown: Iterable[str]) -> tuple[bool, str]:
    """Return whether an answer by types is complete, and its note. `unknown` are the files whose rows it lacks; another
    definition of the name may be in any file that cannot be parsed.
    """
    files = sorted({*unknown, *map(shown, scope.symbols.failed_with(name, as_word=True))})
    return not files, f"By types ({typed.server}). {unparsed_note(files)}".strip()


def use_rows(
    scope: Scope, typed: Typed, name: str, folder: str, around: Around, *, calls_only: bool
) -> tuple[Rows, list[str]]:
    """Return a row for each line that a server named, in the order of the syntax-based answer; and the files whose lines
    are unknown.
    """
    lines: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for place in typed.places:
        if folder == "." or place.path == folder or place.path.startswith(folder + "/"):
            lines[place.path].setdefault(place.line, place.column)
    rows: Rows = []
    unknown: list[str] = []
    for path, columns in lines.items():
        raw = os.fsencode(path)
        read = read_text(os.fsencode(scope.root), raw)
        if read is None:
            # A file that was deleted since has no lines.
            unknown += [shown(raw)] if os.path.exists(os.path.join(scope.root, path)) else []
            continue
        texts = read[0].split(b"\n")
        chosen = [line for line in columns if 0 < line <= len(texts)]
        if calls_only:
            calls = _calls(scope, path, read[0], texts, {line: columns[line] for line in chosen})
            if calls is None:
                unknown.append(shown(raw))
                continue
            chosen = calls
        containers = around(scope.symbols.of_file(raw) or [], chosen, name)
        for line in chosen:
            use: dict[str, object] = {
                "path": shown(raw),
                "line": line,
                "text": texts[line - 1][:_LONGEST_TEXT].decode("utf-8", "replace").strip(),
            }
            if line in containers:
                use["container"] = containers[line]
            rows.append(((path_tier(shown(raw)), shown(raw), line), use))
    return sorted(rows, key=lambda row: row[0]), unknown


def _calls(
    scope: Scope, path: str, text: bytes, texts: Sequence[bytes], columns: Mapping[int, int]
) -> list[int] | None:
    """Return those of these lines in which the name at the column is called; None if the file cannot be parsed."""
    language = catalog.of_path(path)
    if language is None or scope.symbols.of_file(os.fsencode(path)) is None:
        return None
    spans: list[Span] = []
    for line, column in columns.items():
        before = texts[line - 1].decode("utf-8", "replace").encode("utf-16-le")[: 2 * max(0, column)]
        start = len(before.decode("utf-16-le", "ignore").encode())
        spans.append((line - 1, start, start + 1))
    roles = scope.symbols.roles(language, text, spans)
    if roles is None:
        return None
    return [line for line, role in zip(columns, roles, strict=True) if role == "call"]


def implementation_rows(
    scope: Scope, typed: Typed, as_data: Callable[[Placed], dict[str, object]]
) -> tuple[Rows, list[str]]:
    """Return a row for each definition that a server named, and the files whose definitions are unknown."""
    rows: Rows = []
    unknown: dict[str, None] = {}
    for place in typed.places:
        raw = os.fsencode(place.path)
        symbols = scope.symbols.of_file(raw)
        if symbols is None:
            unknown[shown(raw)] = None
        around = [one for one in symbols or [] if one.line <= place.line <= one.end_line]
        if around:
            inner = max(around, key=lambda one: (one.line, -one.end_line))
            rows.append(((0, shown(raw), inner.line), as_data(Placed(raw, inner))))
    unique = {row[0]: row for row in rows}
    return [unique[key] for key in sorted(unique)], list(unknown)
