"""Matches qualified names such as `hashers.check_password` or `ruff_linter::checkers::ast::Checker`. Pure.

A qualifier may be a symbol's container (a class, a namespace), the location of its file (a module, a package, a crate),
or both. sari does not resolve imports, so it compares the words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SEPARATOR = re.compile(r"\.|::|#|->|\\|/")


def split_name(query: str) -> tuple[tuple[str, ...], str]:
    """Return the words before the name, and the name."""
    *qualifier, name = _SEPARATOR.split(query)
    words = tuple(word for word in qualifier if word)
    return (words, name) if name else ((), query)


def qualifier_rank(qualifier: Sequence[str], container: str | None, path: str, root_name: str) -> int | None:
    """Return how well a symbol matches a qualifier, 0 best; None if it does not match.

    `path` is the file's path, relative to a workspace whose folder is named `root_name`.
    """
    wanted = [_folded(word) for word in qualifier]
    inner = [_folded(word) for word in _SEPARATOR.split(container or "") if word]
    if inner[len(inner) - len(wanted) :] == wanted and len(wanted) <= len(inner):
        return 0
    if ".".join(wanted) in ".".join(inner):
        return 1
    folders, _, file = path.rpartition("/")
    outer = [root_name, *folders.split("/"), file.partition(".")[0]]
    words = [*(_folded(word) for word in outer), *inner]
    # Compare from the right, so that the nearest folder or file of that name counts.
    if wanted[-1] not in words:
        return None
    nearest = len(words) - 1 - words[::-1].index(wanted[-1])
    before = iter(reversed(words[:nearest]))
    fits = all(word in before for word in reversed(wanted[:-1]))
    return 2 + len(words) - 1 - nearest if fits else None


def _folded(word: str) -> str:
    # A crate or package name often has hyphens where code has underscores.
    return word.lower().replace("-", "_")
