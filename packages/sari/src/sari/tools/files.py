"""The `find_files` and `recent` tools: files by name, and files by time."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from heapq import nlargest, nsmallest

from sari.index.git import Repository, open_repository
from sari.protocol.tooling import Call, ToolResult
from sari.tools.arguments import Arguments, BadArguments
from sari.tools.scope import Scope, path_filter, path_tier, shown, uncancelled

_SINCE = re.compile(r"(\d+)\s*(m|min|minutes?|h|hours?|d|days?|w|weeks?)(?:\s+ago)?")


def answer_find_files(scope: Scope, arguments: Arguments, call: Call) -> ToolResult:
    query = arguments.text("query").strip().strip("/").removeprefix("./").lower().replace("\\", "/")
    lead = str(scope.root).lower().strip("/") + "/"
    query = query.removeprefix(lead)
    limit = arguments.number("limit", 50)
    keep = path_filter(scope.root, arguments.names("globs"), ())
    letters = "".join(query.split())
    found: list[tuple[tuple[int, int, int, int], str]] = []
    for path in uncancelled(scope.index.paths(), call):
        if keep is not None and not keep(path):
            continue
        text = shown(path)
        score = _score(query, letters, text)
        if score is not None:
            found.append((score, text))
    best = [text for _, text in nsmallest(limit, found)]
    files = [{"path": text} for text in best]
    structured: dict[str, object] = {"files": files, "total": len(found), "complete": len(files) == len(found)}
    rows = list(best)
    if len(found) > len(best):
        structured["note"] = f"{len(best)} of {len(found)} files are shown; raise `limit` or narrow the query."
        rows.append(str(structured["note"]))
    return ToolResult("\n".join(rows) or f"No file's path matches {query!r}. Try fewer letters.", structured)


def _score(query: str, letters: str, path: str) -> tuple[int, int, int, int] | None:
    """Return a match score, lower is better: exact names, parts of names, parts of paths, then letters in order."""
    low = path.lower()
    name = low.rpartition("/")[2]
    spread = 0
    if query in (name, low):
        kind = 0
    elif name.startswith(query):
        kind = 1
    elif query in name:
        kind = 2
    elif query in low:
        kind = 3
    elif (in_name := subsequence_span(letters, name)) is not None:
        kind, spread = 4, in_name
    elif (in_path := subsequence_span(letters, low)) is not None:
        kind, spread = 5, in_path
    else:
        return None
    return kind, path_tier(path), spread, len(path)


def subsequence_span(letters: str, text: str) -> int | None:
    """Return the length of the span that contains these letters in order; None if there is none. In linear time."""
    end = -1
    for letter in letters:
        end = text.find(letter, end + 1)
        if end < 0:
            return None
    # Search backwards from the end of the first match: no shorter span ends there.
    start = end + 1
    for letter in reversed(letters):
        start = text.rfind(letter, 0, start)
    return end + 1 - start


def answer_recent(scope: Scope, arguments: Arguments, call: Call) -> ToolResult:
    limit = arguments.number("limit", 30)
    since = _since(arguments.text("since"))
    rows: dict[str, dict[str, object]] = {}
    with open_repository(scope.root) as repository:
        if repository is not None:
            for path in _uncommitted(repository):
                _add(rows, scope, path, "uncommitted", since)
            for path, when, commit in _committed(repository, limit, since):
                if path not in rows:
                    rows[path] = {"path": path, "changed": when, "source": "commit", "commit": commit}
    for path in _newest(scope, limit, call):
        if path not in rows:
            _add(rows, scope, path, "modified", since)
    order = {"uncommitted": 0, "modified": 1, "commit": 1}
    by_time = sorted(rows.values(), key=lambda row: str(row["changed"]), reverse=True)
    files = sorted(by_time, key=lambda row: order[str(row["source"])])[:limit]
    lines = [
        f"{row['changed']}  {row['path']}  ({row['source']}{' ' + str(row.get('commit', ''))})".replace(" )", ")")
        for row in files
    ]
    return ToolResult("\n".join(lines) or "Nothing changed in that time.", {"files": files})


def _since(text: str) -> datetime | None:
    text = text.strip().lower()
    if not text:
        return None
    ago = _SINCE.fullmatch(text)
    if ago:
        unit = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}[ago[2][0]]
        return datetime.now(UTC) - timedelta(**{unit: int(ago[1])})
    try:
        given = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadArguments("`since` must be like `2h`, `3d`, `1w` or a date such as 2026-01-31.") from error
    return given if given.tzinfo else given.astimezone()


def _add(rows: dict[str, dict[str, object]], scope: Scope, path: str, source: str, since: datetime | None) -> None:
    try:
        when = datetime.fromtimestamp(os.lstat(scope.root / path).st_mtime, UTC)
    except OSError:
        return
    if since is None or when >= since:
        rows[path] = {"path": path, "changed": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "source": source}


def _newest(scope: Scope, limit: int, call: Call) -> list[str]:
    times: list[tuple[float, str]] = []
    for path in uncancelled(scope.index.paths(), call):
        try:
            times.append((os.lstat(os.path.join(os.fsencode(scope.root), path)).st_mtime, shown(path)))
        except OSError:
            continue
    return [path for _, path in nlargest(limit, times)]


def _uncommitted(repository: Repository) -> list[str]:
    # Submodules are separate repositories, whose settings would apply, so they are left out.
    output = repository.run(
        "status",
        "--porcelain=v1",
        "-z",
        "--untracked-files=all",
        "--no-renames",
        "--ignore-submodules=all",
        "--",
        ".",
    )
    return [entry[3:].removeprefix(repository.prefix) for entry in output.split("\0") if len(entry) > 3]


def _committed(repository: Repository, limit: int, since: datetime | None) -> list[tuple[str, str, str]]:
    if repository.head is None:
        return []
    until = [f"--since={since.isoformat()}"] if since else []
    output = repository.run(
        "log", f"-{max(10, limit)}", *until, "--name-only", "--relative", "-z", "--no-show-signature", "--no-ext-diff",
        "--no-textconv", "--format=%x01%h%x02%ct%x02", repository.head, "--", ".",
    )  # fmt: skip
    found: list[tuple[str, str, str]] = []
    for commit in output.split("\x01")[1:]:
        short, stamp, names = commit.split("\x02", 2)
        when = datetime.fromtimestamp(int(stamp), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        found.extend((name.strip("\n"), when, short) for name in names.split("\0") if name.strip("\n"))
    return found
