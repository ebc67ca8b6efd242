"""The `find_files` and `recent` tools: files by name, and files by time."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from heapq import nlargest, nsmallest

from sari.protocol.tooling import ToolResult
from sari.tools.arguments import Arguments, BadArguments
from sari.tools.scope import Scope, path_filter, path_tier, shown

_SINCE = re.compile(r"(\d+)\s*(m|min|minutes?|h|hours?|d|days?|w|weeks?)(?:\s+ago)?")


def answer_find_files(scope: Scope, asked: Arguments) -> ToolResult:
    query = asked.text("query").strip().strip("/").removeprefix("./").lower().replace("\\", "/")
    lead = str(scope.root).lower().strip("/") + "/"
    query = query.removeprefix(lead)
    limit = asked.number("limit", 50)
    keep = path_filter(scope.index, scope.root, asked.names("globs"), ())
    letters = [re.escape(char) for char in query if not char.isspace()]
    fuzzy = re.compile(".*?".join(letters), re.DOTALL)
    found: list[tuple[tuple[int, int, int, int], str]] = []
    for path in scope.index.paths():
        if keep is not None and not keep(path):
            continue
        text = shown(path)
        score = _score(query, fuzzy, text)
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


def _score(query: str, fuzzy: re.Pattern[str], path: str) -> tuple[int, int, int, int] | None:
    """The smaller the better: exact names, then parts of names, parts of paths, then letters in order."""
    low = path.lower()
    name = low.rpartition("/")[2]
    if query in (name, low):
        kind = 0
    elif name.startswith(query):
        kind = 1
    elif query in name:
        kind = 2
    elif query in low:
        kind = 3
    elif fuzzy.search(name):
        kind = 4
    elif fuzzy.search(low):
        kind = 5
    else:
        return None
    match = fuzzy.search(name if kind == 4 else low)
    spread = match.end() - match.start() if match and kind >= 4 else 0
    return kind, path_tier(path), spread, len(path)


def answer_recent(scope: Scope, asked: Arguments) -> ToolResult:
    limit = asked.number("limit", 30)
    since = _since(asked.text("since"))
    rows: dict[str, dict[str, object]] = {}
    for path in _uncommitted(scope):
        _add(rows, scope, path, "uncommitted", since)
    for path, when, commit in _committed(scope, limit, since):
        if path not in rows:
            rows[path] = {"path": path, "changed": when, "source": "commit", "commit": commit}
    for path in _newest(scope, limit):
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


def _newest(scope: Scope, limit: int) -> list[str]:
    times: list[tuple[float, str]] = []
    for path in scope.index.paths():
        try:
            times.append((os.lstat(os.path.join(os.fsencode(scope.root), path)).st_mtime, shown(path)))
        except OSError:
            continue
    return [path for _, path in nlargest(limit, times)]


def _git(scope: Scope, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-c", "core.quotepath=off", *arguments],
            cwd=scope.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "backslashreplace") if done.returncode == 0 else ""


def _uncommitted(scope: Scope) -> list[str]:
    output = _git(scope, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", ".")
    prefix = _git(scope, "rev-parse", "--show-prefix").strip()
    return [entry[3:].removeprefix(prefix) for entry in output.split("\0") if len(entry) > 3]


def _committed(scope: Scope, limit: int, since: datetime | None) -> list[tuple[str, str, str]]:
    until = [f"--since={since.isoformat()}"] if since else []
    output = _git(
        scope, "log", f"-{max(10, limit)}", *until, "--name-only", "--relative", "-z", "--date=iso-strict-local",
        "--format=%x01%h%x02%ct%x02", "--", ".",
    )  # fmt: skip
    found: list[tuple[str, str, str]] = []
    for commit in output.split("\x01")[1:]:
        short, stamp, names = commit.split("\x02", 2)
        when = datetime.fromtimestamp(int(stamp), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        found.extend((name.strip("\n"), when, short) for name in names.split("\0") if name.strip("\n"))
    return found
