"""Matches qualified names such as `hashers.check_password` or `ruff_linter::checkers::ast::Checker`. Pure.

A qualifier may be a symbol's container (a class, a namespace), the location of its file (a module, a package, a crate),
the namespace or package that the file declares, or several of these. sari does not resolve imports, so it compares the
words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SEPARATOR = re.compile(r"\.|::|#|->|\\|/")
# `(*Echo).Start` in Go, `<Request as Clone>::clone` in Rust.
_RECEIVER = re.compile(r"^\(\*?(\w+)\)|^<&?(\w+)[^>]*>")
# These name no place of their own: the crate or object at hand, and where JavaScript keeps methods.
_RELATIVE = frozenset({"crate", "self", "Self", "super", "this"})
_PROTOTYPE = "prototype"
# `namespace Polly.Retry;`, `package okio`, `namespace GuzzleHttp\\Handler;`: where a file says that it belongs.
_DECLARED = re.compile(rb"^[ \t]*(?:namespace|package)[ \t]+([\w.\\:]+)", re.MULTILINE)


def split_name(query: str) -> tuple[tuple[str, ...], str]:
    """Return the words before the name, and the name."""
    *qualifier, name = _SEPARATOR.split(_RECEIVER.sub(lambda found: found[1] or found[2], query))
    words = [word for word in qualifier if word and word != _PROTOTYPE]
    while words and words[0] in _RELATIVE:
        words = words[1:]
    return (tuple(words), name) if name else ((), query)


def declared_namespaces(text: bytes) -> list[str]:
    """Return the namespaces or the package that a file's text declares."""
    return [found.decode("utf-8", "replace") for found in _DECLARED.findall(text)]


def qualifier_rank(qualifier: Sequence[str], container: str | None, path: str, root_name: str) -> int | None:
    """Return how well a symbol matches a qualifier, 0 best; None if it does not match.

    `path` is the file's path, relative to a workspace whose folder is named `root_name`.
    """
    wanted, inner = _folded_words(qualifier), _folded_words(_SEPARATOR.split(container or ""))
    if inner[len(inner) - len(wanted) :] == wanted and len(wanted) <= len(inner):
        return 0
    if ".".join(wanted) in ".".join(inner):
        return 1
    folders, _, file = path.rpartition("/")
    return _rank_in(wanted, [*_folded_words([root_name, *folders.split("/"), file.partition(".")[0]]), *inner])


def namespace_rank(qualifier: Sequence[str], container: str | None, namespace: str) -> int | None:
    """Return how well a symbol matches a qualifier if its file declares this namespace, as `qualifier_rank` does."""
    words = [*_SEPARATOR.split(namespace), *_SEPARATOR.split(container or "")]
    return _rank_in(_folded_words(qualifier), _folded_words(words))


def _rank_in(wanted: list[str], words: list[str]) -> int | None:
    # Compare from the right, so that the nearest folder or file of that name counts.
    if wanted[-1] not in words:
        return None
    nearest = len(words) - 1 - words[::-1].index(wanted[-1])
    before = iter(reversed(words[:nearest]))
    fits = all(word in before for word in reversed(wanted[:-1]))
    return 2 + len(words) - 1 - nearest if fits else None


def _folded_words(words: Sequence[str]) -> list[str]:
    return [_folded(word) for word in words if word]


def _folded(word: str) -> str:
    # A crate or package name often has hyphens where code has underscores.
    return word.lower().replace("-", "_")
