"""Determines which folders the ignore files exclude, so that the watcher can skip them.

It never decides which files are searched: ripgrep's own walk decides that.
"""

from __future__ import annotations

import os
from pathlib import Path

from sari.index.globs import InvalidGlob, Pattern, compile_pattern
from sari.index.regular import read_regular

IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")
# The rules of a larger file are left out here, which only means that more is watched.
_LARGEST_BYTES = 1 << 20


class Ignored:
    """Decides whether a folder is ignored, by the ignore files from the root down to it. If in doubt, it is not ignored."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._git_rules: dict[str, tuple[Pattern, ...]] = {}
        self._other_rules: dict[str, tuple[Pattern, ...]] = {}
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
            if not inner_repository and self._in_git:
                rules = (*rules, *self._rules(self._git_rules, base, (".git/info/exclude", ".gitignore")))
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

    def _rules(self, kept: dict[str, tuple[Pattern, ...]], base: str, names: tuple[str, ...]) -> tuple[Pattern, ...]:
        known = kept.get(base)
        if known is None:
            known = tuple(rule for name in names for rule in _read_rules(os.path.join(self._root, base, name)))
            kept[base] = known
        return known


def _read_rules(path: str) -> list[Pattern]:
    content = read_regular(path, _LARGEST_BYTES)
    if content is None:
        return []
    rules = []
    for line in content.decode("utf-8", "surrogateescape").split("\n"):
        try:
            pattern = compile_pattern(line)
        except InvalidGlob:
            # Like ripgrep, ignore an invalid line.
            continue
        if pattern is not None:
            rules.append(pattern)
    return rules
