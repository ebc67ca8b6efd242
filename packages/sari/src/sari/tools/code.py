"""The tools that know syntax: `symbols`, `references`, `callers`, `implementations`. By names, never by types."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from sari.index.search import Query, fetch, search
from sari.languages import catalog
from sari.languages.parse import MAX_PARSED_BYTES, Symbol, role_at, tree_of
from sari.languages.read import read_text
from sari.languages.store import Placed
from sari.protocol.catalog import KINDS
from sari.protocol.tooling import Call, ToolResult
from sari.tools.arguments import Arguments, BadArguments
from sari.tools.qualified_names import qualifier_rank, split_name
from sari.tools.scope import Scope, path_filter, path_tier, shown

_BY_SYNTAX = "By syntax, not by types: other things of the same name are among them."
_SCOPES = frozenset({"class", "struct", "interface", "trait", "impl", "function", "method", "constructor", "module"})
_MOST_USES = 300
_MOST_FILES = 400
_NAME = re.compile(r"[^\W\d][\w$]*[?!]?|[$_][\w$]*")


def answer_symbols(scope: Scope, asked: Arguments) -> ToolResult:
    query = asked.text("query").strip().removesuffix("()")
    if not query:
        raise BadArguments("`query` is empty. Give a name or a part of it; `outline` lists a file's symbols.")
    kinds = {_kind(kind) for kind in asked.names("kind")}
    keep = path_filter(scope.root, (), asked.names("languages"))
    limit = asked.number("limit", 50)
    qualifier, name = split_name(query)
    placed, complete = scope.symbols.named(name, 20_000)
    notes = [] if complete else [_PARTIAL]
    named = [one for one in placed if (not kinds or one.symbol.kind in kinds) and (keep is None or keep(one.path))]
    ranks = {one: _qualifier_rank(scope, qualifier, one) for one in named}
    chosen = [one for one in named if ranks[one] is not None]
    if named and not chosen:
        # A qualifier that sari cannot follow (an alias, a re-export) is no reason to deny what exists.
        chosen = named
        notes.append(f"None of these is known as {query!r}: they only share its last part.")
    chosen.sort(key=lambda one: (_distance(one.symbol.name, name), ranks[one] or 0, path_tier(shown(one.path))))
    return _listed("symbols", chosen, limit, complete, " ".join(notes), f"No symbol's name holds {name!r}.")


def _qualifier_rank(scope: Scope, qualifier: Sequence[str], placed: Placed) -> int | None:
    if not qualifier:
        return 0
    return qualifier_rank(qualifier, placed.symbol.container, shown(placed.path), scope.root.name)


_PARTIAL = "Not every file is parsed yet, so some symbols may be missing; ask again in a moment."


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


def answer_implementations(scope: Scope, asked: Arguments) -> ToolResult:
    name = _name(asked)
    types, complete = scope.symbols.extending(name)
    again, also = scope.symbols.exactly(name)
    methods = [one for one in again if one.symbol.kind in ("method", "constructor")]
    chosen = [*types, *methods]
    complete = complete and also
    note = _BY_SYNTAX if complete else f"{_BY_SYNTAX} {_PARTIAL}"
    nothing = f"Nothing extends or implements {name!r}, and no method has that name."
    return _listed("implementations", chosen, _MOST_USES, complete, note, nothing)


def answer_references(scope: Scope, asked: Arguments, call: Call) -> ToolResult:
    name = _name(asked)
    within = asked.text("path")
    folder = os.fsencode(scope.path(within)) if within else b"."
    uses, complete = _uses(scope, name, folder, call)
    return _uses_result(
        "references", name, uses, complete, f"{name!r} is used nowhere in code. `search` also looks into comments."
    )


def answer_callers(scope: Scope, asked: Arguments, call: Call) -> ToolResult:
    name = _name(asked)
    uses, complete = _uses(scope, name, b".", call)
    calls = [use for use in uses if use["role"] == "call"]
    return _uses_result(
        "callers", name, calls, complete, f"{name!r} is called nowhere. `references` lists its other uses."
    )


def _name(asked: Arguments) -> str:
    given = asked.text("name").strip().removesuffix("()")
    name = re.split(r"\.|::|#|->", given)[-1]
    if not _NAME.fullmatch(name):
        raise BadArguments(
            f"`name` must be one identifier, e.g. open_file; not {given!r}. For free text use `search`."
        )
    return name


def _uses_result(key: str, name: str, uses: list[dict[str, object]], complete: bool, nothing: str) -> ToolResult:
    shown_uses = uses[:_MOST_USES]
    note = _BY_SYNTAX
    if len(uses) > len(shown_uses):
        note += f" {len(shown_uses)} of {len(uses)} are shown; narrow by `path`, or use `search` with a cursor."
    if not complete:
        note += f" Only the first {_MOST_FILES} files that hold the name were parsed."
    whole = complete and len(uses) == len(shown_uses)
    structured: dict[str, object] = {key: shown_uses, "total": len(uses), "complete": whole, "note": note}
    rows = [
        f"{use['path']}:{use['line']}:{use['text']}" + (f"   [in {use['container']}]" if use.get("container") else "")
        for use in shown_uses
    ]
    return ToolResult("\n".join([*(rows or [nothing]), note]), structured)


def _uses(scope: Scope, name: str, folder: bytes, call: Call) -> tuple[list[dict[str, object]], bool]:
    """Every place where the name stands in code. Files come in order of interest."""

    def keep(path: bytes) -> bool:
        below = folder == b"." or path == folder or path.startswith(folder + b"/")
        return below and catalog.of_path(os.fsdecode(path)) is not None

    found, _ = search(scope.index, Query(name, "words", "sensitive"), keep, lambda: call.cancelled)
    paths = sorted(found.counts, key=lambda path: (path_tier(shown(path)), path))
    chosen = paths[:_MOST_FILES]
    fetch(scope.index, found, chosen, lambda: call.cancelled)
    uses: list[dict[str, object]] = []
    for done, path in enumerate(chosen):
        if call.cancelled:
            break
        if done % 50 == 49:
            call.progress(done, len(chosen), "files parsed")
        uses.extend(_uses_in(scope, path, name, {hit.line for hit in found.hits[path]}))
    return uses, len(chosen) == len(paths)


def _uses_in(scope: Scope, path: bytes, name: str, lines: set[int]) -> Iterator[dict[str, object]]:
    read = read_text(os.fsencode(scope.root), path, MAX_PARSED_BYTES)
    language = None if read is None else catalog.of_file(os.fsdecode(path), read[0])
    if read is None or language is None:
        return
    tree = tree_of(language, read[0])
    rows = read[0].split(b"\n")
    symbols = scope.symbols.of_file(path) or []
    wanted = re.compile(rb"(?<![\w$])" + re.escape(name.encode()) + rb"(?![\w$])")
    for line in sorted(lines):
        if line > len(rows):
            continue
        roles = {role_at(tree, line - 1, m.start(), m.end()) for m in wanted.finditer(rows[line - 1])} - {None}
        if not roles:
            continue
        role = "call" if "call" in roles else sorted(str(one) for one in roles)[0]
        use: dict[str, object] = {
            "path": shown(path),
            "line": line,
            "text": rows[line - 1][:300].decode("utf-8", "replace").strip(),
            "role": role,
        }
        container = _around(symbols, line, name)
        if container:
            use["container"] = container
        yield use


def _around(symbols: list[Symbol], line: int, name: str) -> str | None:
    """The innermost definition that a line is in, other than that of the name itself."""
    inner = None
    for symbol in symbols:
        within = symbol.line <= line <= symbol.end_line and symbol.kind in _SCOPES
        if within and not (symbol.name == name and symbol.line == line):
            inner = symbol
    return None if inner is None else f"{inner.container}.{inner.name}" if inner.container else inner.name
