"""The `repo_map` tool: the files and definitions that the rest of the code uses most, within a budget."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sari.languages import catalog
from sari.languages.parse import Symbol
from sari.protocol.tooling import ToolResult
from sari.ranking.file_kind import FileKind, kind_of
from sari.ranking.symbol_graph import FileNames, Importance, foremost_first, importance
from sari.tools.arguments import Arguments
from sari.tools.scope import Scope, path_tier, shown

_MOST_PARSED = 2_000
_TIMEOUT_S = 4.0
# Enough of a file to see what it uses.
_READ_BYTES = 1 << 17
_TYPES = frozenset({"class", "interface", "struct", "enum", "trait", "type"})
_OTHERS = frozenset({"function", "module", "namespace", "macro"})
_MOST_NAMES = 8
# A name as used in code: `Model)` or `Model.objects`, but not a capitalized word at the start of a sentence. It begins
# at a word boundary and is possessive, so that a file consisting of one long word takes no longer than others.
_MENTION = re.compile(rb"(?<![\w$\x80-\xff])[A-Za-z_$\x80-\xff][\w$\x80-\xff]*+(?=[(.\[,):>{;\]&*!<]|[ \t\r]*+\n)")
# In Go, a qualifier is a package or a variable. Only the former can qualify a top-level name: `http.Handler` is not our
# `Handler`, and `builder.String()` is not our type `String`.
_GO_MENTION = re.compile(rb"(?<![\w.\x80-\xff])(?:(\w++)\.)?([^\W\d]\w*+)(?=[(.\[,):>{;\]&*!<]|[ \t\r]*+\n)")
# A file's rank depends on its top definitions, not on its length.
_FOREMOST = 5
# A test uses the code that it tests, which is weaker evidence than a use in source code.
_COUNTS = {FileKind.SOURCE: 1.0, FileKind.TEST: 0.2, FileKind.DOCUMENT: 0.2, FileKind.VENDORED: 0.1}


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The data of a map."""

    paths: list[bytes]
    parseable: int
    ranks: Importance


class RepoMap:
    """The last map of a workspace, kept until any change: the next page or budget costs nothing."""

    def __init__(self) -> None:
        self._kept: tuple[int, _Drawn] | None = None

    def draw(self, scope: Scope) -> _Drawn:
        change = scope.index.change() if scope.symbols.complete else -1
        kept = self._kept
        if kept is not None and kept[0] == change >= 0:
            return kept[1]
        paths = sorted(scope.index.paths(), key=lambda path: (path_tier(shown(path)), path.count(b"/"), path))
        parseable = [path for path in paths if catalog.of_path(shown(path)) is not None]
        drawn = _Drawn(paths, len(parseable), importance(_names(scope, parseable[:_MOST_PARSED])))
        self._kept = change, drawn
        return drawn


def _names(scope: Scope, paths: Sequence[bytes]) -> dict[bytes, FileNames]:
    defined: dict[bytes, tuple[dict[str, int], dict[str, int]]] = {}
    deadline = time.monotonic() + _TIMEOUT_S
    for path in paths:
        if time.monotonic() > deadline:
            break
        top = [symbol for symbol in scope.symbols.of_file(path) or () if not symbol.container]
        defined[path] = _sizes(top, _TYPES), _sizes(top, _OTHERS)
    wanted = {
        name.encode("utf-8", "surrogateescape") for both in defined.values() for names in both for name in names
    }
    packages = {path.rpartition(b"/")[0].rpartition(b"/")[2] for path in defined if path.endswith(b".go")}
    return {
        path: FileNames(types, others, _mentions(scope, path, wanted, packages), _COUNTS[kind_of(shown(path))])
        for path, (types, others) in defined.items()
    }


def _sizes(symbols: Sequence[Symbol], kinds: frozenset[str]) -> dict[str, int]:
    return {one.name: one.end_line - one.line + 1 for one in symbols if one.kind in kinds}


def _mentions(scope: Scope, path: bytes, wanted: set[bytes], packages: set[bytes]) -> frozenset[str]:
    try:
        with open(os.path.join(os.fsencode(scope.root), path), "rb") as file:
            text = file.read(_READ_BYTES)
    except OSError:
        return frozenset()
    if path.endswith(b".go"):
        packages = {*packages, os.fsencode(scope.root.name)}
        words = {name for package, name in _GO_MENTION.findall(text) if not package or package in packages}
    else:
        words = set(_MENTION.findall(text))
    return frozenset(word.decode("utf-8", "surrogateescape") for word in words & wanted)


def answer_repo_map(scope: Scope, kept: RepoMap, arguments: Arguments) -> ToolResult:
    """Return files by how much the code depends on their definitions, each with its top definitions, within the budget."""
    budget = arguments.number("max_tokens", 4000) * 4
    drawn = kept.draw(scope)
    definitions = drawn.ranks.definitions
    ranked = sorted(foremost_first({path: _worth(of.values()) for path, of in definitions.items()}), key=_tier)
    tree = _folders(drawn.paths)
    budget -= sum(len(row) + 8 for row in tree)
    files: list[dict[str, object]] = []
    rows: list[str] = []
    for path in ranked:
        of_file = definitions[path]
        names = sorted(of_file, key=lambda name: -of_file[name])[:_MOST_NAMES]
        row = f"{shown(path)}: {', '.join(names)}" if names else shown(path)
        budget -= len(row) + 40 + 3 * len(names)
        if budget < 0:
            break
        files.append({"path": shown(path), "symbols": names})
        rows.append(row)
    complete = len(files) == drawn.parseable
    structured: dict[str, object] = {"files": files, "total_files": len(drawn.paths), "complete": complete}
    if not complete:
        structured["note"] = (
            f"The foremost {len(files)} of {len(drawn.paths)} files; `find_files` and `outline` show the others."
        )
    notes = [str(structured["note"])] if not complete else []
    return ToolResult("\n".join([f"{scope.root}: {len(drawn.paths)} files", *tree, "", *rows, *notes]), structured)


def _tier(path: bytes) -> int:
    return {FileKind.SOURCE: 0, FileKind.DOCUMENT: 1, FileKind.TEST: 1, FileKind.VENDORED: 2}[kind_of(shown(path))]


def _worth(ranks: Iterable[float]) -> float:
    return sum(sorted(ranks, reverse=True)[:_FOREMOST])


def _folders(paths: list[bytes]) -> list[str]:
    counts: Counter[str] = Counter(shown(path).partition("/")[0] + "/" for path in paths if b"/" in path)
    return [f"{folder} {count} files" for folder, count in counts.most_common(20)]
