"""Determines which folders the ignore files exclude, so that the watcher can skip them.

It never decides which files are searched: ripgrep's own walk decides that.
"""

from __future__ import annotations

import os
from pathlib import Path

from sari.index.globs import InvalidGlob, Pattern, compile_pattern
from sari.index.regular import read_start

IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")
# If a file is larger, or the rules of a workspace are more, nothing is ignored where they would apply. That only means that
# more is watched. Leaving out some rules could ignore what another of them includes again.
_LARGEST_BYTES = 1 << 20
_MOST_RULES = 20_000


class Ignored:
    """Decides whether a folder is ignored, by the ignore files from the root down to it. If in doubt, it is not ignored."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._git_rules: dict[str, tuple[Pattern, ...] | None] = {}
        self._other_rules: dict[str, tuple[Pattern, ...] | None] = {}
        self._left = _MOST_RULES
        self._repositories: dict[str, bool] = {}

    def folder(self, path: str) -> bool:
        """Whether the folder `path`, relative to the root, is ignored. Assumes that its parents are not."""
        parts = path.split("/")
        ignored = False
        # From the folder upwards: a repository's git rules end where an inner repository begins.
        inner_repository = False
        for depth in reversed(range(len(parts))):
            base, rest = "/".join(parts[:depth]), "/".join(parts[depth:])
            rules = self._rules(self._other_rules, base, IGNORE_FILES[1:])
            of_git: tuple[Pattern, ...] | None = ()
            if not inner_repository and self._in_git:
                of_git = self._rules(self._git_rules, base, (".git/info/exclude", ".gitignore"))
            if rules is None or of_git is None:
                return False
            rules = (*rules, *of_git)
            for rule in rules:
                if rule.regex.fullmatch(rest):
                    # Which of two rules wins depends on the kind and location of their files: one negated rule is
                    # enough to keep the folder.
                    if rule.negated:
                        return False
                    ignored = True
            inner_repository = inner_repository or self._is_repository(base)
        return ignored

    @property
    def _in_git(self) -> bool:
        return self._is_repository("")

    def _is_repository(self, base: str) -> bool:
        known = self._repositories.get(base)
        if known is None:
            # In a worktree or submodule, `.git` is a file.
            known = self._repositories[base] = os.path.lexists(os.path.join(self._root, base, ".git"))
        return known

    def _rules(
        self, kept: dict[str, tuple[Pattern, ...] | None], base: str, names: tuple[str, ...]
    ) -> tuple[Pattern, ...] | None:
        """Return the rules of a folder; None if they are too many to know."""
        if base not in kept:
            rules: list[Pattern] | None = []
            for name in names:
                found = _read_rules(os.path.join(self._root, base, name), self._left)
                rules = None if rules is None or found is None else rules + found
                self._left -= len(found or ())
            kept[base] = None if rules is None else tuple(rules)
        return kept[base]


def _read_rules(path: str, most: int) -> list[Pattern] | None:
    content = read_start(path, _LARGEST_BYTES + 1) or b""
    if len(content) > _LARGEST_BYTES:
        return None
    rules: list[Pattern] = []
    for line in content.decode("utf-8", "surrogateescape").split("\n"):
        try:
            pattern = compile_pattern(line)
        except InvalidGlob:
            # Like ripgrep, ignore an invalid line.
            continue
        if pattern is not None:
            rules.append(pattern)
            if len(rules) > most:
                return None
    return rules
