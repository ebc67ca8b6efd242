"""The `search` tool: every matching line, most interesting first, page by page within a budget.

A cursor identifies the last line of a page by its sort key. A file's sort key depends on that file alone, so continuing
from a cursor never skips or repeats a line of a file that did not change in between.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sari.index.search import Found, Hit, Query, fetch, search, separate_alone
from sari.protocol.tooling import Call, ToolResult
from sari.tools.arguments import Arguments, BadArguments
from sari.tools.scope import path_filter, path_tier, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Protocol

    from sari.index.search import Tree

    class SearchedTree(Tree, Protocol):
        """The files to search, and what is known of them."""

        def change(self) -> int: ...

        def status(self) -> Mapping[str, object]: ...

    class SearchScope(Protocol):
        """The part of `Scope` that a search needs."""

        @property
        def root(self) -> Path: ...

        @property
        def index(self) -> SearchedTree: ...


# Claude and other clients show a model the JSON rather than the text, so both stay within the budget. Four bytes per
# token.
_BYTES_PER_TOKEN = 4
_OVERHEAD_PER_MATCH = 34
_KEPT_ANSWERS = 8
_KEPT_LINES = 20_000
# How many files are fetched at a time until a page is full.
_FILES_AT_ONCE = 60
# With more files than this, sorting by definitions is not worth searching all of them again.
_MOST_RANKED = 5_000
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
_DEFINES = (
    r"^\s*(?:export\s+|default\s+|pub(?:\([a-z]+\))?\s+|public\s+|private\s+|protected\s+|internal\s+|static\s+|final\s+|abstract\s+"
    r"|async\s+|open\s+|override\s+|data\s+|sealed\s+|unsafe\s+|const\s+)*"
    r"(?:def|class|function\*?|func|fun|fn|struct|interface|enum|trait|impl|type|module|namespace|protocol|record|object|macro_rules!"
    r"|const|let|var|val|#\s*define|typedef)\s+(?:\([^)]*\)\s*)?(?:self\.)?"
)

Rank = tuple[int, int, str]


@dataclass(slots=True)
class _Answer:
    """A query's answer, kept for its next pages: files in order."""

    change: int
    found: Found
    ranked: list[tuple[Rank, bytes]]
    lock: threading.Lock = field(default_factory=threading.Lock)


class Searches:
    """The kept answers of one workspace, for paging. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Answer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, change: int) -> _Answer | None:
        with self._lock:
            answer = self._kept.get(key)
            return answer if answer is not None and answer.change == change >= 0 else None

    def keep(self, key: str, answer: _Answer) -> None:
        with self._lock:
            self._kept[key] = answer
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT_ANSWERS:
                self._kept.popitem(last=False)


def answer_search(scope: SearchScope, searches: Searches, arguments: Arguments, call: Call) -> ToolResult:
    query = _query(arguments)
    key = json.dumps([query.text, query.mode, query.case, arguments.names("globs"), arguments.names("languages")])
    after = _read_cursor(arguments.text("cursor"), key)
    answer = _answer(scope, searches, query, key, arguments, call)
    with answer.lock:
        page, cursor = _page(scope, answer, arguments, after, key, call)
        total = answer.found.total
        if answer.found.kept > _KEPT_LINES:
            answer.found.forget_lines()
    structured: dict[str, object] = {"matches": page, "total": total, "complete": True, "cursor": cursor}
    note = _note(scope, page, total, cursor)
    if note:
        structured["note"] = note
    return ToolResult(_as_text(page, total, cursor, note, query), structured)


def _query(arguments: Arguments) -> Query:
    text = arguments.text("query")
    if not text:
        raise BadArguments("`query` is empty. Say what to look for; `find_files` lists files.")
    if "\0" in text:
        raise BadArguments("`query` holds a NUL character: files with one are binary and not searched.")
    return Query(text, arguments.text("mode", "literal"), arguments.text("case", "smart"))


def _answer(
    scope: SearchScope, searches: Searches, query: Query, key: str, arguments: Arguments, call: Call
) -> _Answer:
    kept = searches.get(key, scope.index.change())
    if kept is not None:
        return kept
    keep = path_filter(scope.root, arguments.names("globs"), arguments.names("languages"))
    found, change = search(scope.index, query, keep, lambda: call.cancelled)
    defining = _defining(scope, query, found, call)
    ranked = sorted((_rank(path, path in defining), path) for path in found.counts)
    answer = _Answer(change, found, ranked)
    searches.keep(key, answer)
    return answer


def _rank(path: bytes, defines: bool) -> Rank:
    text = shown(path)
    return path_tier(text), 0 if defines else 1, text


def _defining(scope: SearchScope, query: Query, found: Found, call: Call) -> set[bytes]:
    """Return the files that define the query, if it is an identifier. They are listed first."""
    if query.mode == "regex" or not _IDENTIFIER.fullmatch(query.text) or len(found.counts) < 2:
        return set()
    if len(found.counts) > _MOST_RANKED:
        return set()
    defines = _DEFINES + re.escape(query.text) + r"\b"
    whole = {path for path, count in found.counts.items() if len(found.hits.get(path, ())) == count}
    by_line = re.compile(defines)
    defining = {path for path in whole if any(by_line.match(hit.text) for hit in found.hits[path] if not hit.is_cut)}
    uncertain = found.counts.keys() - whole
    separate_alone(scope.index, found, uncertain)
    counted = sorted(uncertain - found.alone)
    if counted:
        inner = Found(Query(defines, "regex", "sensitive"), dict.fromkeys(counted, 1))
        fetch(scope.index, inner, counted, lambda: call.cancelled)
        defining |= {path for path in counted if any(not hit.is_cut for hit in inner.hits[path])}
    return defining


def _page(
    scope: SearchScope, answer: _Answer, arguments: Arguments, after: tuple[Rank, int] | None, key: str, call: Call
) -> tuple[list[dict[str, object]], str | None]:
    context = arguments.number("context", 0)
    budget = arguments.number("max_tokens", 4000) * _BYTES_PER_TOKEN
    page: list[dict[str, object]] = []
    last: tuple[Rank, int] | None = None
    ranked = answer.ranked if after is None else [entry for entry in answer.ranked if entry[0] >= after[0]]
    for at in range(0, len(ranked), _FILES_AT_ONCE):
        batch = ranked[at : at + _FILES_AT_ONCE]
        fetch(scope.index, answer.found, [path for _, path in batch], lambda: call.cancelled)
        for rank, path in batch:
            rows = _Rows(scope, path) if context else None
            for hit in answer.found.hits[path]:
                if after is not None and (rank, hit.line) <= after:
                    continue
                match = _match(rank[2], hit, rows, context)
                budget -= _cost(match)
                if budget < 0 and last is not None:
                    return page, _write_cursor(key, *last)
                page.append(match)
                last = rank, hit.line
    return page, None


def _match(path: str, hit: Hit, rows: _Rows | None, context: int) -> dict[str, object]:
    match: dict[str, object] = {"path": path, "line": hit.line, "text": hit.text}
    if rows is not None:
        match["before"], match["after"] = rows.around(hit.line, context)
    return match


def _cost(match: dict[str, object]) -> int:
    size = len(str(match["path"])) + len(str(match["text"])) + _OVERHEAD_PER_MATCH
    for side in ("before", "after"):
        rows = match.get(side)
        if isinstance(rows, list):
            size += sum(len(row) + 4 for row in rows)
    return size


class _Rows:
    """A file's lines, for the context of matches. Read on first use."""

    def __init__(self, scope: SearchScope, path: bytes) -> None:
        # Only here: importing it loads the parsers.
        from sari.languages.read import read_text

        read = read_text(os.fsencode(scope.root), path)
        self._rows = [] if read is None else read[0].split(b"\n")

    def around(self, line: int, context: int) -> tuple[list[str], list[str]]:
        before = self._rows[max(0, line - 1 - context) : line - 1]
        after = self._rows[line : line + context]
        if after and line + context >= len(self._rows) and not after[-1]:
            after = after[:-1]
        return [_cut(row) for row in before], [_cut(row) for row in after]


def _cut(row: bytes) -> str:
    return row[:300].decode("utf-8", "replace").rstrip("\r")


def _write_cursor(key: str, rank: Rank, line: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([_digest(key), rank, line]).encode()).decode()


def _read_cursor(cursor: str, key: str) -> tuple[Rank, int] | None:
    if not cursor:
        return None
    try:
        digest, (vendored, defines, path), line = json.loads(base64.urlsafe_b64decode(cursor))
        after = (int(vendored), int(defines), str(path)), int(line)
    except (ValueError, TypeError, RecursionError, binascii.Error) as error:
        raise BadArguments("`cursor` is not one that sari gave. Leave it out to begin at the first page.") from error
    if digest != _digest(key):
        raise BadArguments("`cursor` belongs to another query. Repeat that query's arguments, or leave `cursor` out.")
    return after


def _digest(key: str) -> str:
    return f"{binascii.crc32(key.encode('utf-8', 'replace')):08x}"


def _note(scope: SearchScope, page: list[dict[str, object]], total: int, cursor: str | None) -> str:
    notes = []
    if cursor is not None:
        notes.append(
            f"{len(page)} of {total} matching lines are shown; pass `cursor` for more, or narrow by `globs`."
        )
    state = scope.index.status()["state"]
    if state != "ready":
        notes.append(f"The index is being built ({state}); this answer is complete, made by scanning the rest.")
    return " ".join(notes)


def _as_text(page: list[dict[str, object]], total: int, cursor: str | None, note: str, query: Query) -> str:
    if not page:
        hint = " Try `case` insensitive, fewer words, or `mode` regex." if query.mode != "regex" else ""
        return f"No line matches {query.text!r} ({query.mode}).{hint}" if not total else "No more matches."
    rows: list[str] = []
    last = ""
    for match in page:
        path, line = str(match["path"]), match["line"]
        before, after = match.get("before"), match.get("after")
        if last and path != last:
            rows.append("")
        last = path
        if isinstance(before, list) and isinstance(line, int):
            rows.extend(f"{path}-{line - len(before) + i}-{row}" for i, row in enumerate(before))
        rows.append(f"{path}:{line}:{match['text']}")
        if isinstance(after, list) and isinstance(line, int):
            rows.extend(f"{path}-{line + 1 + i}-{row}" for i, row in enumerate(after))
    rows.append("")
    rows.append(note or f"{total} matching lines, all shown.")
    if cursor is not None:
        rows.append(f"cursor: {cursor}")
    return "\n".join(rows)
