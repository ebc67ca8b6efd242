"""Decides which files a .dockerignore leaves out of a build, by the rules of Docker's own client. Pure."""

from __future__ import annotations

import posixpath
import re
from typing import Callable

_MOST_PATTERNS = 1000


def parse(text: str) -> list[tuple[bool, re.Pattern[str]]]:
    """Return (keeps, pattern) for each line. The last pattern that matches a path or one of its folders decides."""
    found = []
    for line in text.splitlines()[:_MOST_PATTERNS]:
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        keeps = line.startswith("!")
        path = posixpath.normpath(line[1:].strip() if keeps else line).lstrip("/")
        if path not in ("", "."):
            found.append((keeps, re.compile(_regex(path) + r"(?:/.*)?", re.S)))
    return found


def ignores(text: str) -> Callable[[str, bool], bool]:
    """Return a function of a path and whether it is a folder: whether it is left out.

    A folder stays while an exception could keep something in it.
    """
    patterns = parse(text)
    exceptions = any(keeps for keeps, _ in patterns)

    def left_out(path: str, is_folder: bool) -> bool:
        out = False
        for keeps, pattern in patterns:
            if pattern.fullmatch(path):
                out = not keeps
        return out and not (is_folder and exceptions)

    return left_out


def _regex(path: str) -> str:
    parts, at = [], 0
    while at < len(path):
        if path.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif path.startswith("**", at):
            parts.append(".*")
            at += 2
        elif path[at] == "*":
            parts.append("[^/]*")
            at += 1
        elif path[at] == "?":
            parts.append("[^/]")
            at += 1
        elif path[at] == "\\" and at + 1 < len(path):
            parts.append(re.escape(path[at + 1]))
            at += 2
        else:
            parts.append(re.escape(path[at]))
            at += 1
    return "".join(parts)
