"""The `rename_symbol` and `replace_symbol` tools: previewed first, then applied to all files or to none.

A call without `apply` changes nothing and returns a `preview`. The same call with that preview as `apply` makes exactly
the changes that were shown; it is refused if any file has changed since.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from sari.edits.check import check_encoding, check_writable
from sari.edits.folders import EditRefused, is_read_only, open_folders, read_regular
from sari.edits.plan import Plan, diff_of, journal_key, preview_id, request_digest
from sari.edits.rename import is_name, rename_in
from sari.edits.replace import replace_in
from sari.edits.reserved import is_reserved
from sari.edits.transaction import MOST_FILES, FileChange, Transactions
from sari.index.search import Query, search
from sari.languages import catalog
from sari.languages.catalog import Language
from sari.languages.parse import MAX_PARSED_BYTES, Span, Symbol
from sari.languages.store import Placed
from sari.protocol.tooling import Call, ToolResult
from sari.tools.arguments import Arguments, BadArguments
from sari.tools.definitions import PARTIAL, placed_named
from sari.tools.qualified_names import split_name
from sari.tools.scope import Scope, shown, uncancelled

_DEFAULT_TOKENS = 2_000
_BYTES_PER_TOKEN = 4
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# Groups of languages whose files use each other's names.
_FAMILIES = (("c", "cpp"), ("javascript", "typescript", "tsx"), ("java", "kotlin"))


def answer_rename(scope: Scope, transactions: Transactions, arguments: Arguments, call: Call) -> ToolResult:
    return _previewed_or_applied(scope, transactions, arguments, lambda: _plan_rename(scope, arguments, call))


def answer_replace(scope: Scope, transactions: Transactions, arguments: Arguments) -> ToolResult:
    return _previewed_or_applied(scope, transactions, arguments, lambda: _plan_replace(scope, arguments))


def _previewed_or_applied(
    scope: Scope, transactions: Transactions, arguments: Arguments, make_plan: Callable[[], Plan]
) -> ToolResult:
    if os.name != "posix":
        raise BadArguments("sari does not edit files on this system yet.")
    root, request = str(scope.root), request_digest(arguments.tool, arguments.values)
    apply = arguments.text("apply").strip()
    key = arguments.text("key").strip()
    journal = journal_key(root, key or apply)
    done = transactions.applied(journal) if apply else None
    if done is not None and done[0] != request:
        raise BadArguments("`key` was used for another edit. Leave it out, or choose another.")
    if done is not None and key:
        return _answered(done[1], "This was applied before; nothing was changed again.")
    try:
        plan = make_plan()
    except (BadArguments, EditRefused) as refused:
        if done is not None:
            return _answered(done[1], "This was applied before; nothing was changed again.")
        raise BadArguments(str(refused)) from refused
    preview = preview_id(root, request, plan.changes)
    if not apply:
        transactions.forget(journal_key(root, preview))
        return _previewed(plan, preview, arguments.number("max_tokens", _DEFAULT_TOKENS))
    if preview != apply:
        if done is not None:
            return _answered(done[1], "This was applied before; nothing was changed again.")
        raise BadArguments("A file changed since that preview, so nothing was changed. Call without `apply` again.")
    files = [{"path": shown(change.path)} for change in plan.changes]
    result: dict[str, object] = {"files": files, "applied": True, "preview": preview, **plan.about}
    try:
        transactions.apply(scope.root, journal, request, plan.changes, result)
    except EditRefused as refused:
        raise BadArguments(str(refused)) from refused
    return _answered(result, "")


def _previewed(plan: Plan, preview: str, max_tokens: int) -> ToolResult:
    budget = max_tokens * _BYTES_PER_TOKEN
    rows: list[dict[str, object]] = []
    unshown = 0
    for change in plan.changes:
        row: dict[str, object] = {"path": shown(change.path)}
        diff = diff_of(change)
        budget -= len(diff) + len(str(row["path"])) + 24
        if budget >= 0 or not rows:
            row["diff"] = diff[: max_tokens * _BYTES_PER_TOKEN]
        else:
            unshown += 1
        rows.append(row)
    notes = [*plan.notes]
    if unshown:
        notes.append(f"The diffs of {unshown} files are not shown; raise `max_tokens`.")
    notes.append(f"Nothing is changed yet: call again with `apply` {preview!r}.")
    result: dict[str, object] = {"files": rows, "applied": False, "preview": preview, **plan.about}
    blocks = [f"{row['path']}\n{row['diff']}" if "diff" in row else str(row["path"]) for row in rows]
    return ToolResult("\n\n".join([*blocks, *notes]), {**result, "note": " ".join(notes)})


def _answered(result: object, note: str) -> ToolResult:
    assert isinstance(result, dict)
    files = result.get("files")
    paths = [str(row["path"]) for row in files] if isinstance(files, list) else []
    structured = {**result, "note": note} if note else result
    heading = note or f"Changed {len(paths)} file{'s' if len(paths) != 1 else ''}:"
    return ToolResult("\n".join([heading, *paths]), structured)


# rename_symbol


def _plan_rename(scope: Scope, arguments: Arguments, call: Call) -> Plan:
    new_name = arguments.text("new_name").strip()
    given = arguments.text("name").strip().removesuffix("()")
    _, name = split_name(given)
    if not is_name(new_name):
        raise BadArguments(f"`new_name` must be one identifier; not {new_name!r}.")
    if new_name == name:
        raise BadArguments("`name` and `new_name` are the same.")
    folder = scope.path(arguments.text("path")) if arguments.text("path").strip() else "."
    definition = _only_definition(scope, given, folder)
    language = catalog.of_path(shown(definition.path))
    assert language is not None
    reserving = sorted(one for one in _family(language.name) if is_reserved(new_name, one))
    if reserving:
        raise BadArguments(f"{new_name!r} is a reserved word in {' and '.join(reserving)}. Choose another name.")
    changes: list[FileChange] = []
    count = left = 0
    skipped: list[str] = []
    with open_folders(scope.root) as folders:
        for path in uncancelled(_holding(scope, name, folder, _family(language.name), call), call):
            if is_read_only(path):
                skipped.append(shown(path))
                continue
            content = _content(folders.of(path), path)
            parsed_as = catalog.of_file(os.fsdecode(path), content)
            if parsed_as is None:
                continue
            if scope.symbols.of_file(path) is None:
                raise _unparsed(path)
            renamed = rename_in(_roles(scope, path, parsed_as), content, name, new_name)
            left += renamed.left
            if renamed.count:
                check_writable(*folders.of(path), shown(path))
                check_encoding(content, new_name, shown(path))
                count += renamed.count
                changes.append(FileChange(path, content, renamed.content))
    if not changes:
        raise BadArguments(f"{name!r} is nowhere an identifier in {_named(folder)}.")
    if len(changes) > MOST_FILES:
        raise BadArguments(f"{len(changes)} files would change, more than {MOST_FILES}. Narrow by `path`.")
    _check_free(scope, new_name, [change.path for change in changes])
    notes = ["By syntax, not by types: other things of the same name are renamed, too. Read the diff."]
    if left:
        notes.append(f"{left} mentions in comments and strings stay.")
    if skipped:
        notes.append(f"Read-only files also hold the name: {', '.join(skipped[:5])}.")
    return Plan(tuple(changes), {"total": count}, tuple(notes))


def _unparsed(path: bytes) -> EditRefused:
    return EditRefused(f"{shown(path)} cannot be parsed. Narrow by `path`; nothing was changed.")


def _roles(scope: Scope, path: bytes, language: Language) -> Callable[[bytes, Sequence[Span]], list[str | None]]:
    def roles(text: bytes, spans: Sequence[Span]) -> list[str | None]:
        found = scope.symbols.roles(language, text, spans)
        if found is None:
            raise _unparsed(path)
        return found

    return roles


def _family(language: str) -> frozenset[str]:
    return frozenset(next((family for family in _FAMILIES if language in family), (language,)))


def _only_definition(scope: Scope, given: str, folder: str) -> Placed:
    """Return the definition to rename. Uses are found by name, so there must be no other definition of that name."""
    _, name = split_name(given)
    named, complete = placed_named(scope, given)
    others, also = placed_named(scope, name)
    if not (complete and also):
        # Another definition might be among the others.
        raise EditRefused(f"{PARTIAL} Nothing was changed.")
    meant = [one for one in named if _is_below(shown(one.path), folder)]
    if not meant:
        raise BadArguments(f"Nothing called {given!r} is defined in {_named(folder)}. `symbols` finds definitions.")
    families = {_family_of(one) for one in meant}
    entities = {
        _entity(one): one for one in others if _is_below(shown(one.path), folder) and _family_of(one) in families
    }
    if len(entities) > 1:
        places = ", ".join(f"{shown(one.path)}:{one.symbol.line}" for one in entities.values())
        raise BadArguments(
            f"{name!r} is defined {len(entities)} times ({places}), and by syntax sari cannot tell their uses apart. "
            "Narrow by `path`: only names in that file or folder are renamed."
        )
    return meant[0]


def _family_of(placed: Placed) -> frozenset[str]:
    language = catalog.of_path(shown(placed.path))
    return _family(language.name) if language is not None else frozenset()


def _entity(placed: Placed) -> tuple[str, str | None]:
    """Return a key for the defined entity: a C function's prototype may be in another file, an overload is in the same
    one.
    """
    language = catalog.of_path(shown(placed.path))
    is_c = language is not None and language.name in ("c", "cpp")
    return "" if is_c else shown(placed.path), placed.symbol.container


def _named(folder: str) -> str:
    return "the workspace" if folder == "." else folder


def _is_below(path: str, folder: str) -> bool:
    return folder == "." or path == folder or path.startswith(folder + "/")


def _holding(scope: Scope, name: str, folder: str, languages: frozenset[str], call: Call) -> Sequence[bytes]:
    def keep(path: bytes) -> bool:
        language = catalog.of_path(os.fsdecode(path))
        return language is not None and language.name in languages and _is_below(shown(path), folder)

    found, _ = search(scope.index, Query(name, "words", "sensitive"), keep, lambda: call.cancelled)
    return sorted(found.counts)


def _content(where: tuple[int, bytes], path: bytes) -> bytes:
    content, _ = read_regular(*where, shown(path), MAX_PARSED_BYTES)
    if content.startswith(_UTF16):
        raise EditRefused(f"{shown(path)} is UTF-16, which sari does not edit.")
    return content


def _check_free(scope: Scope, new_name: str, paths: Sequence[bytes]) -> None:
    taken, _ = scope.symbols.exactly(new_name)
    clash = next((one for one in taken if one.path in set(paths)), None)
    if clash is not None:
        raise BadArguments(
            f"{new_name!r} is already defined in {shown(clash.path)}:{clash.symbol.line}. Choose another name."
        )


# replace_symbol


def _plan_replace(scope: Scope, arguments: Arguments) -> Plan:
    text = arguments.text("text")
    if not text.strip():
        raise BadArguments("`text` is empty. Give the whole new definition.")
    path = scope.file(arguments.text("path"))
    if is_read_only(path):
        raise BadArguments(f"{shown(path)} belongs to an installed dependency or to git: sari does not change it.")
    language = catalog.of_path(shown(path))
    if language is None:
        raise BadArguments(f"{shown(path)} is not in a language that sari parses.")
    with open_folders(scope.root) as folders:
        content = _content(folders.of(path), path)
        check_writable(*folders.of(path), shown(path))
    symbols = scope.symbols.of_file(path)
    if symbols is None:
        raise EditRefused(f"{shown(path)} cannot be parsed, so sari does not know its definitions.")
    symbol = _only_symbol(symbols, arguments.text("symbol").strip(), Path(shown(path)))
    check_encoding(content, text, shown(path))

    def first_error(tried: bytes) -> int | None:
        found = scope.symbols.first_error(language, tried)
        if found is None:
            raise EditRefused(f"{shown(path)} takes too long to parse, so it was not changed.")
        return found[0]

    after = replace_in(first_error, content, symbols, symbol, text)
    if after == content:
        raise BadArguments("`text` is what the file already holds.")
    about = {"start": symbol.line, "end": symbol.end_line}
    return Plan((FileChange(path, content, after),), about)


def _only_symbol(symbols: Sequence[Symbol], wanted: str, path: Path) -> Symbol:
    qualifier, name = split_name(wanted.removesuffix("()"))
    found = [one for one in symbols if one.name == name]
    if qualifier:
        found = [one for one in found if (one.container or "").split(".")[-len(qualifier) :] == list(qualifier)]
    if not found:
        names = ", ".join(one.name for one in symbols[:20])
        raise BadArguments(f"{path} defines no `{wanted}`. It defines: {names or 'nothing sari can parse'}.")
    if len(found) > 1:
        places = ", ".join(f"line {one.line}" + (f" in {one.container}" if one.container else "") for one in found)
        raise BadArguments(f"{path} defines `{wanted}` {len(found)} times: {places}. Say `Class.name`.")
    return found[0]
