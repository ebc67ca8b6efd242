"""gitignore-style patterns: which paths a list of globs takes in or leaves out.

Two users: the `globs` of a query (ripgrep's `-g`), and the watcher, which need not watch folders that are ignored.
Which files are searched is never decided here: ripgrep's own walk decides that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of an ignore file, or one glob."""

    regex: re.Pattern[str]
    negated: bool
    folders_only: bool


@lru_cache(maxsize=4096)
def compile_pattern(line: str) -> Pattern | None:
    """Read one line by git's rules; None for blanks and comments."""
    text = line.rstrip("\n").rstrip("\r")
    if text.endswith(" ") and not text.endswith("\\ "):
        text = text.rstrip(" ")
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text[1:] if negated else text
    if text.startswith("\\") and text[1:2] in ("!", "#"):
        text = text[1:]
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    anchored = "/" in text
    text = text.removeprefix("/")
    if not anchored and not text.startswith("**/"):
        text = "**/" + text
    try:
        return Pattern(re.compile(_translate(text), re.DOTALL), negated, folders_only)
    except re.error:
        return None


def _translate(glob: str) -> str:
    out: list[str] = []
    at, depth = 0, 0
    while at < len(glob):
        char = glob[at]
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            out.append("(?:.*/)?")
            at += 3
            continue
        if glob.startswith("/**", at) and at + 3 == len(glob):
            out.append("/.+")
            break
        if glob == "**":
            return ".*"
        at += 1
        if char == "*":
            while glob[at : at + 1] == "*":
                at += 1
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            at = _bracket(glob, at, out)
        elif char == "{":
            depth += 1
            out.append("(?:")
        elif char == "}" and depth:
            depth -= 1
            out.append(")")
        elif char == "," and depth:
            out.append("|")
        elif char == "\\" and at < len(glob):
            out.append(re.escape(glob[at]))
            at += 1
        else:
            out.append(re.escape(char))
    return "".join(out)


def _bracket(glob: str, at: int, out: list[str]) -> int:
    close = glob.find("]", at + 2 if glob[at : at + 1] in ("!", "^") else at + 1)
    if close < 0:
        out.append(r"\[")
        return at
    inner = glob[at:close]
    negate = inner[:1] in ("!", "^")
    body = inner[1:] if negate else inner
    escaped = (
        body.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^").replace("&", "\\&")
    )
    out.append(f"(?!/)[{'^' if negate else ''}{escaped}]")
    return close + 1


def last_match(patterns: Sequence[Pattern], path: str, is_folder: bool) -> Pattern | None:
    """The pattern that decides: the last that matches."""
    for pattern in reversed(patterns):
        if (is_folder or not pattern.folders_only) and pattern.regex.fullmatch(path):
            return pattern
    return None


class Globs:
    """The `globs` of a query. As ripgrep's `-g`: the last that matches decides, `!` leaves out with all below it."""

    def __init__(self, globs: Iterable[str], folders: frozenset[str] = frozenset()) -> None:
        kept: list[Pattern] = []
        for glob in globs:
            for spelled in _forgive(glob, folders):
                pattern = compile_pattern(spelled)
                if pattern is not None:
                    kept.append(pattern)
        self._patterns = tuple(kept)
        self._selective = any(not pattern.negated for pattern in kept)
        self._left_out: dict[str, bool] = {"": False}

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def takes(self, path: str) -> bool:
        folder = path.rpartition("/")[0]
        if self._folder_left_out(folder):
            return False
        decided = last_match(self._patterns, path, is_folder=False)
        return not self._selective if decided is None else not decided.negated

    def _folder_left_out(self, folder: str) -> bool:
        known = self._left_out.get(folder)
        if known is None:
            decided = last_match(self._patterns, folder, is_folder=True)
            known = self._folder_left_out(folder.rpartition("/")[0]) or (decided is not None and decided.negated)
            self._left_out[folder] = known
        return known


def _forgive(glob: str, folders: frozenset[str]) -> list[str]:
    """`./src` and `src/` mean what is below; so does the bare name of a folder in the workspace."""
    negated = glob.startswith("!")
    body = glob.removeprefix("!")
    anchored = body.startswith("./")
    body = body.removeprefix("./")
    lead = ("!" if negated else "") + ("/" if anchored and not body.startswith("/") else "")
    name = body.strip("/")
    if negated or not name:
        return [lead + body]
    is_folder = name in folders or ("/" not in name and any(folder.endswith("/" + name) for folder in folders))
    if not is_folder and not body.endswith("/"):
        return [lead + body]
    below = f"{name}/**" if "/" in name or anchored or body.startswith("/") else f"**/{name}/**"
    return [below] if body.endswith("/") else [lead + body, below]


class Ignored:
    """Whether a folder is ignored, by the ignore files from the root down to it. Conservative: when in doubt, it is not."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._rules: dict[str, tuple[Pattern, ...]] = {}
        self._git = os.path.exists(os.path.join(self._root, ".git"))

    def folder(self, path: str) -> bool:
        """`path` relative to the root; its parents are taken not to be ignored."""
        parts = path.split("/")
        ignored = False
        for depth in range(len(parts)):
            rest = "/".join(parts[depth:])
            for rule in self._rules_of("/".join(parts[:depth])):
                if rule.regex.fullmatch(rest):
                    # Which of two rules wins depends on their files' kinds and places: one that keeps it is enough.
                    if rule.negated:
                        return False
                    ignored = True
        return ignored

    def _rules_of(self, base: str) -> tuple[Pattern, ...]:
        known = self._rules.get(base)
        if known is None:
            names = (".git/info/exclude", *IGNORE_FILES) if self._git else IGNORE_FILES[1:]
            known = tuple(rule for name in names for rule in _read_rules(os.path.join(self._root, base, name)))
            self._rules[base] = known
        return known


def _read_rules(path: str) -> list[Pattern]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return [pattern for line in file if (pattern := compile_pattern(line)) is not None]
    except OSError:
        return []
