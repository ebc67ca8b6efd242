"""The `repo_map` tool: the files and definitions that the rest of the code uses most, within a budget."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from sari.index.regular import read_start
from sari.languages import catalog
from sari.languages.parse import Symbol
from sari.protocol.tooling import ToolResult
from sari.ranking.file_kind import FileKind, kind_of
from sari.ranking.symbol_graph import FileNames, Importance, foremost_first, importance
from sari.tools.arguments import Arguments
from sari.tools.definitions import unparsed_note
from sari.tools.scope import Scope, path_tier, shown

_MOST_PARSED = 2_000
_TIMEOUT_S = 4.0
# Enough of a file to see what it uses.
_READ_BYTES = 1 << 17
_TYPES = frozenset({"class", "interface", "struct", "enum", "trait", "type"})
_OTHERS = frozenset({"function", "module", "namespace", "macro"})
_MOST_NAMES = 8
# The names that are compared: of one file, and of all together in characters. More would fill the memory.
_MOST_DEFINED = 2_000
_MOST_CHARACTERS = 16 << 20
# A name as used in code, `Model)` or `models.Model(`, but not a capitalized word at the start of a sentence. It begins at a
# word boundary and is possessive, so that a file consisting of one long word takes no longer than others.
_WORD = rb"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*+"
_MENTION = re.compile(
    rb"(?<![\w$.\x80-\xff])(?:(" + _WORD + rb")(?:\.|::|->))?(" + _WORD + rb")(?=[(.\[,):>{;\]&*!<]|[ \t\r]*+\n)"
)
# A file's rank depends on its top definitions, not on its length.
_FOREMOST = 5
# A test uses the code that it tests, which is weaker evidence than a use in source code.
_COUNTS = {
    FileKind.SOURCE: 1.0,
    FileKind.TEST: 0.2,
    FileKind.DOCUMENT: 0.2,
    FileKind.RECORD: 0.2,
    FileKind.AUXILIARY: 0.2,
    FileKind.VENDORED: 0.1,
}


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The data of a map."""

    paths: list[bytes]
    parseable: int
    unparsed: list[str]
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
        names, unparsed = _names(scope, parseable[:_MOST_PARSED])
        drawn = _Drawn(paths, len(parseable), unparsed, importance(names))
        self._kept = change, drawn
        return drawn


def _names(scope: Scope, paths: Sequence[bytes]) -> tuple[dict[bytes, FileNames], list[str]]:
    """Return the names of files: not of all if that takes too much time or memory. Also returns the files that cannot be
    parsed.
    """
    found: dict[bytes, FileNames] = {}
    unparsed: list[str] = []
    # What a file defines at any depth.
    defined: dict[bytes, frozenset[str]] = {}
    homes: dict[bytes, set[bytes]] = {}
    deadline = time.monotonic() + _TIMEOUT_S
    left = _MOST_CHARACTERS
    for path in paths:
        if time.monotonic() > deadline or left < 0:
            break
        of_file = scope.symbols.of_file(path)
        if of_file is None:
            unparsed.append(shown(path))
            continue
        top = [symbol for symbol in of_file if not symbol.container]
        types, others = _sizes(top, _TYPES), _sizes(top, _OTHERS)
        for name in (*types, *others):
            homes.setdefault(_encoded(name), set()).update(_qualifiers(scope, path))
        found[path] = FileNames(types, others, (), _COUNTS[kind_of(shown(path))])
        defined[path] = frozenset(dict.fromkeys(islice((symbol.name for symbol in of_file), 10 * _MOST_DEFINED)))
        left -= sum(map(len, defined[path])) + 20 * len(defined[path])
    named = {
        # A method of the same name, which the file itself defines, is no use of another file's function.
        path: replace(names, mentions=_mentions(scope, path, homes) - defined[path])
        for path, names in found.items()
    }
    return named, unparsed


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _qualifiers(scope: Scope, path: bytes) -> tuple[bytes, bytes]:
    """Return what may stand before a name that a file defines: its module, or its folder as the package."""
    folder, _, file = path.rpartition(b"/")
    return file.partition(b".")[0], folder.rpartition(b"/")[2] or os.fsencode(scope.root.name)


def _sizes(symbols: Sequence[Symbol], kinds: frozenset[str]) -> dict[str, int]:
    chosen = (one for one in symbols if one.kind in kinds)
    return {one.name: one.end_line - one.line + 1 for one in islice(chosen, _MOST_DEFINED)}


def _mentions(scope: Scope, path: bytes, homes: Mapping[bytes, Collection[bytes]]) -> frozenset[str]:
    """Return the names that a file uses, of those that have a home.

    With a qualifier, only what can come from there counts: `http.Handler` is not our `Handler`, and `file.close()` calls a
    method, not our function `close`.
    """
    text = read_start(os.path.join(os.fsencode(scope.root), path), _READ_BYTES) or b""
    words: set[bytes] = set()
    for qualifier, name in set(_MENTION.findall(text)):
        is_type = qualifier[:1].isupper()
        if is_type and qualifier in homes:
            words.add(qualifier)
        if name in homes and (not qualifier or qualifier in homes[name] or (is_type and name[:1].isupper())):
            words.add(name)
    return frozenset(word.decode("utf-8", "surrogateescape") for word in words)


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
            f"The foremost {len(files)} of {len(drawn.paths)} files; `find_files` and `outline` show the others. "
            + unparsed_note(drawn.unparsed, "`search` and `read` show what they define")
        ).strip()
    notes = [str(structured["note"])] if not complete else []
    return ToolResult("\n".join([f"{scope.root}: {len(drawn.paths)} files", *tree, "", *rows, *notes]), structured)


def _tier(path: bytes) -> int:
    kind = kind_of(shown(path))
    return 0 if kind is FileKind.SOURCE else 2 if kind is FileKind.VENDORED else 1


def _worth(ranks: Iterable[float]) -> float:
    return sum(sorted(ranks, reverse=True)[:_FOREMOST])


def _folders(paths: list[bytes]) -> list[str]:
    counts: Counter[str] = Counter(shown(path).partition("/")[0] + "/" for path in paths if b"/" in path)
    return [f"{folder} {count} files" for folder, count in counts.most_common(20)]
