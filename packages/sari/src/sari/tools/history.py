"""The `history` tool: finds commits by lines, symbol, text or path that they touched, or by their message.

`sari.index.git` runs git and executes nothing that the repository names. A call runs for some seconds and then returns
its results and a cursor, so that a history of any length takes bounded time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from sari.index import ripgrep
from sari.index.commits import LOG_FLAGS, Commit, committed_lines, parse_commits
from sari.index.git import ANY_SIZE, GitFailed, Repository, Stopped, is_object_id, open_repository
from sari.languages.parse import Symbol
from sari.protocol.tooling import Call, ToolResult
from sari.ranking.commit_messages import MOST_COMMITS, CommitMessages
from sari.tools.arguments import Arguments, BadArguments
from sari.tools.definitions import PARTIAL, placed_named, unparsed_note
from sari.tools.paging import Key, Page, read_cursor, take_page, write_cursor
from sari.tools.reading import find_symbol
from sari.tools.scope import Scope, shown

_DEFAULT_TOKENS = 2_000
# After this time a call returns what it has found.
_TIME_S = 10.0
# Following lines cannot be resumed where it stopped, so it may take longer.
_LINES_TIME_S = 25.0
_MOST_COMMITS_OF_LINES = 300
_FIRST_BATCH, _LARGEST_BATCH = 32, 1024
_SLOW_BATCH_S = 0.7
_MOST_SHOWN_MESSAGE = 700
_MOST_SHOWN_PATHS = 8
_LONGEST_TEXT = 2_000
_SHALLOW = (
    "This is a shallow clone: older commits are missing, and its oldest one seems to have added every file. "
    "`git fetch --unshallow` gets the others."
)


def answer_history(scope: Scope, messages: CommitMessages, arguments: Arguments, call: Call) -> ToolResult:
    with open_repository(scope.root) as repository:
        if repository is None:
            raise BadArguments(f"{scope.root} is not in a git repository, so it has no history.")
        if repository.head is None:
            raise BadArguments("The repository has no commit yet.")
        try:
            return _History(scope, repository, messages, arguments, call).answer()
        except Stopped as stopped:
            raise ripgrep.Cancelled from stopped
        except GitFailed as failed:
            raise BadArguments(f"git cannot read this history ({failed}). Is the repository damaged?") from failed


class _History:
    """One call."""

    def __init__(
        self, scope: Scope, repository: Repository, messages: CommitMessages, arguments: Arguments, call: Call
    ) -> None:
        self._scope, self._repository, self._messages, self._call = scope, repository, messages, call
        self._arguments = arguments
        self._notes: list[str] = []
        self._path = scope.path(arguments.text("path")) if arguments.text("path").strip() else ""
        self._query = "history " + "\0".join(
            str(arguments.values.get(name, ""))
            for name in ("query", "path", "symbol", "start", "end", "text", "regex")
        )
        after = read_cursor(arguments.text("cursor"), self._query)
        # Later pages continue from the head of the first one, whatever was committed in between.
        self._after = after
        if after is not None and not is_object_id(after[1]):
            # The cursor comes from the client. Anything else would be an option or a path for git.
            raise BadArguments("`cursor` is not one that sari gave. Leave it out to begin at the first page.")
        self._head = after[1] if after is not None else str(repository.head)
        self._began = time.monotonic()
        if repository.is_shallow:
            self._notes.append(_SHALLOW)

    def answer(self) -> ToolResult:
        arguments = self._arguments
        ways = [name for name in ("query", "symbol", "start", "text") if arguments.values.get(name)]
        if len(ways) > 1:
            raise BadArguments(
                f"Give one of `query`, `symbol`, `start` and `text`, not {' and '.join(ways)} at once."
            )
        if ways == ["query"]:
            return self._by_message(arguments.text("query"))
        if ways == ["symbol"]:
            return self._by_symbol(arguments.text("symbol").strip())
        if ways == ["start"]:
            if not self._path:
                raise BadArguments("`start` needs `path`: the file whose lines you mean.")
            start = arguments.number("start", 1)
            return self._by_lines(self._path, start, arguments.number("end", start))
        if ways == ["text"]:
            return self._by_text(arguments.text("text"), is_regex=arguments.flag("regex"))
        return self._walked(())

    # Kinds of queries.

    def _by_message(self, question: str) -> ToolResult:
        found, complete = self._messages.find(
            self._repository, self._head, question, lambda: self._call.cancelled, self._is_late
        )
        if self._path:
            found = [one for one in found if any(_is_below(path, self._path) for path in one.paths)]
        if not complete:
            self._notes.append(
                "The messages of this history are too large: older ones are not indexed. `text` searches all commits."
                if self._messages.is_full
                else "Older messages are still being indexed; ask again in a moment."
            )
        rows = [((place, self._head, 0), _row(commit)) for place, commit in enumerate(found, 1)]
        nothing = f"No message of the last {MOST_COMMITS:,} commits is about that. `text` searches what was changed."
        return self._paged(rows, complete, nothing)

    def _by_symbol(self, name: str) -> ToolResult:
        symbol, path = self._definition(name)
        if symbol is None:
            last = name.rpartition(".")[2].rpartition(":")[2]
            unparsed = [
                shown(path)
                for path in self._scope.symbols.failed_with(last, as_word=True)
                if not self._path or _is_below(shown(path), self._path)
            ]
            self._notes.append(
                f"{unparsed_note(unparsed, f'{name!r} may be defined there')} These commits added or removed the name."
                if unparsed
                else f"Nothing is called {name!r} now; these commits added or removed the name."
            )
            return self._by_text(last, is_regex=False)
        return self._by_lines(path, symbol.line, symbol.end_line)

    def _definition(self, name: str) -> tuple[Symbol | None, str]:
        if self._path and (self._scope.root / self._path).is_file():
            return find_symbol(self._scope.symbols.of_file(self._scope.file(self._path)) or [], name), self._path
        named, complete = placed_named(self._scope, name)
        if not complete:
            self._notes.append(PARTIAL)
        placed = [one for one in named if not self._path or _is_below(shown(one.path), self._path)]
        if not placed:
            return None, ""
        if len(placed) > 1:
            first, others = placed[0], ", ".join(f"{shown(one.path)}:{one.symbol.line}" for one in placed[1:6])
            self._notes.append(
                f"This is {shown(first.path)}:{first.symbol.line}; {name!r} is also defined in {others}: give `path`."
            )
        return placed[0].symbol, shown(placed[0].path)

    def _by_lines(self, path: str, start: int, end: int) -> ToolResult:
        if end < start:
            raise BadArguments(f"`end` {end} is before `start` {start}. Lines count from 1, both ends included.")
        committed = self._committed(path, start, end)
        if committed is None:
            return self._paged([], True, f"Lines {start}-{end} of {path} are not committed yet.")
        # Follow lines through renames.
        flags = ("-s", "-M", f"-n{_MOST_COMMITS_OF_LINES}", f"-L{committed[0]},{committed[1]}:{path}")
        late = False
        commits: list[Commit] = []

        def stopped() -> bool:
            nonlocal late
            late = time.monotonic() - self._began > _LINES_TIME_S
            return late or self._call.cancelled

        try:
            commits.extend(
                parse_commits(
                    self._repository.stream(
                        "log", *LOG_FLAGS, *flags, self._head, stopped=stopped, most_bytes=ANY_SIZE
                    )
                )
            )
        except Stopped:
            if not late:
                raise
            self._notes.append("Following these lines took too long; older commits are missing.")
        except GitFailed as failed:
            raise BadArguments(f"{path} has no lines {start}-{end} in the last commit.") from failed
        rows = [((place, self._head, 0), _row(commit)) for place, commit in enumerate(commits, 1)]
        return self._paged(rows, not late, f"No commit touched lines {start}-{end} of {path}.")

    def _committed(self, path: str, start: int, end: int) -> tuple[int, int] | None:
        """Map these lines to the commit from which they are followed, because the file may have been edited since."""
        known = self._repository.output("cat-file", "-e", f"{self._head}:./{path}")
        if known is None:
            raise BadArguments(f"{path} is not in the last commit, so its lines have no history.")
        diff = self._repository.output(
            "diff", "-U0", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", self._head, "--", path
        )
        return committed_lines(diff or b"", start, end)

    def _by_text(self, text: str, *, is_regex: bool) -> ToolResult:
        if len(text) > _LONGEST_TEXT or "\0" in text:
            raise BadArguments(f"`text` must be at most {_LONGEST_TEXT} characters, without NUL.")
        if not is_regex:
            return self._walked(("-S" + text,))
        try:
            return self._walked(("-G" + as_extended(text),))
        except GitFailed as failed:
            raise BadArguments(
                f"git cannot search for this pattern ({failed}). `text` must be a POSIX extended regular expression."
            ) from failed

    # Walk the history in batches.

    def _walked(self, chosen: Sequence[str]) -> ToolResult:
        """Return the commits that git selects of all that touched the path, newest first, starting at the cursor."""
        done = self._after[0] if self._after is not None else 0
        budget = self._arguments.number("max_tokens", _DEFAULT_TOKENS)
        page = Page([], None)
        size = _FIRST_BATCH
        while True:
            began = time.monotonic()
            ids = self._ids(done, size)
            commits = {commit.id: commit for commit in self._details(ids, chosen)}
            rows: list[tuple[Key, dict[str, object]]] = [
                ((done + place, self._head, 0), _row(commits[commit_id]))
                for place, commit_id in enumerate(ids, 1)
                if commit_id in commits
            ]
            page = take_page([*(((0, "", 0), row) for row in page.rows), *rows], self._query, None, budget)
            done += len(ids)
            if page.cursor is not None:
                return self._given(page, True)
            if len(ids) < size:
                return self._given(page, True)
            self._call.progress(done, None, f"{done:,} commits looked at")
            if self._is_late():
                self._notes.append(f"{done:,} commits were looked at so far; pass `cursor` to look further back.")
                return self._given(Page(page.rows, write_cursor(self._query, (done, self._head, 0))), False)
            if time.monotonic() - began < _SLOW_BATCH_S:
                size = min(size * 2, _LARGEST_BATCH)

    def _ids(self, skipped: int, count: int) -> list[str]:
        where = ["--", self._path or "."] if self._path or self._repository.prefix else []
        output = b"".join(
            self._repository.stream(
                "rev-list",
                "--no-merges",
                f"--skip={skipped}",
                f"-n{count}",
                self._head,
                *where,
                stopped=lambda: self._call.cancelled,
            )
        )
        return output.decode().split()

    def _details(self, ids: Sequence[str], chosen: Sequence[str]) -> Iterator[Commit]:
        if not ids:
            return iter(())
        where = ["--", self._path] if self._path else []
        output = self._repository.stream(
            "log", "--no-walk=unsorted", "--stdin", "--name-only", "--relative", *LOG_FLAGS, *chosen, *where,
            stdin=ids, stopped=lambda: self._call.cancelled, most_bytes=ANY_SIZE,
        )  # fmt: skip
        return parse_commits(output)

    def _is_late(self) -> bool:
        return time.monotonic() - self._began > _TIME_S

    # Answers.

    def _paged(self, rows: list[tuple[Key, dict[str, object]]], complete: bool, nothing: str) -> ToolResult:
        page = take_page(rows, self._query, self._after, self._arguments.number("max_tokens", _DEFAULT_TOKENS))
        return self._given(page, complete, nothing)

    def _given(self, page: Page, complete: bool, nothing: str = "No commit did that.") -> ToolResult:
        complete = complete and not self._repository.is_shallow
        structured: dict[str, object] = {"commits": page.rows, "complete": complete, "cursor": page.cursor}
        if self._notes:
            structured["note"] = " ".join(self._notes)
        blocks = [_as_text(row) for row in page.rows] or [nothing]
        more = [f"cursor: {page.cursor}"] if page.cursor is not None else []
        return ToolResult("\n\n".join([*blocks, *self._notes, *more]), structured)


def as_extended(pattern: str) -> str:
    """Convert a pattern to a POSIX extended one, which git expects: `\\d` becomes the class of digits."""
    parts: list[str] = []
    in_class = False
    for part in re.findall(r"\\.|.", pattern, re.S):
        if part in (r"\d", r"\D"):
            if in_class and part == r"\D":
                raise BadArguments(r"`text` holds \D in brackets, which git's patterns cannot say. Use [^0-9].")
            digits = "0-9" if part == r"\d" else "^0-9"
            parts.append(digits if in_class else f"[{digits}]")
            continue
        in_class = part == "[" or (in_class and part != "]")
        parts.append(part)
    return "".join(parts)


def _is_below(path: str, folder: str) -> bool:
    return folder == "." or path == folder or path.startswith(folder + "/")


def _row(commit: Commit) -> dict[str, object]:
    message = commit.message
    if len(message) > _MOST_SHOWN_MESSAGE:
        message = message[:_MOST_SHOWN_MESSAGE] + "…"
    row: dict[str, object] = {
        "commit": commit.id[:12],
        "date": datetime.fromtimestamp(commit.time_s, UTC).strftime("%Y-%m-%d"),
        "author": commit.author[:80],
        "message": message,
    }
    if commit.paths:
        row["paths"] = list(commit.paths[:_MOST_SHOWN_PATHS])
        if len(commit.paths) > _MOST_SHOWN_PATHS:
            row["more_paths"] = len(commit.paths) - _MOST_SHOWN_PATHS
    return row


def _as_text(row: dict[str, object]) -> str:
    lines = [f"{row['commit']} {row['date']} {row['author']}", str(row["message"])]
    paths = row.get("paths")
    if isinstance(paths, list):
        more = f" and {row['more_paths']} more" if "more_paths" in row else ""
        lines.append(f"[{', '.join(paths)}{more}]")
    return "\n".join(lines)
