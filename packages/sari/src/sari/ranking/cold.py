"""Finds the files for a question before there is a term index: ripgrep counts its terms in every file.

Slower and coarser than the index. Used for the first question in a workspace that was never opened.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sari.index import ripgrep
from sari.ranking.question import Question
from sari.ranking.rank import name_match

_MOST_TERMS = 12
_MOST_FILES = 48
_MOST_A_FILE = 50
_MOST_OUTPUT = 32 << 20


def candidates(
    root: Path,
    question: Question,
    keep: Callable[[bytes], bool] | None,
    cancelled: Callable[[], bool],
) -> list[bytes]:
    """Return the files that contain most of the question, best first."""
    terms = sorted(
        (term for term in question.terms if len(term) > 2), key=lambda one: (-question.terms[one], -len(one))
    )
    terms = terms[:_MOST_TERMS]
    if not terms:
        return []
    counted: defaultdict[bytes, Counter[str]] = defaultdict(Counter)
    patterns = [f"--regexp={term}" for term in terms]
    options = ["--null", "--only-matching", "--no-line-number", "--no-heading", "--with-filename", "--ignore-case"]
    arguments = [*options, "--fixed-strings", f"--max-count={_MOST_A_FILE}", *patterns, "./"]
    for path, match in _matches(ripgrep.stream(arguments, root, cancelled)):
        counted[path.removeprefix(b"./")][match.decode("utf-8", "replace").lower()] += 1
    kept = {path: counts for path, counts in counted.items() if keep is None or keep(path)}
    return sorted(kept, key=_score(kept, question))[:_MOST_FILES]


def _matches(output: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield each path and what matched there, until there is enough. A path may contain a newline."""
    rest, seen = b"", 0
    for chunk in output:
        seen += len(chunk)
        found, at = rest + chunk, 0
        while True:
            at = ripgrep.after_messages(found, at)
            path_end = found.find(b"\0", at)
            end = found.find(b"\n", path_end)
            if path_end < 0 or end < 0:
                break
            yield found[at:path_end], found[path_end + 1 : end]
            at = end + 1
        rest = found[at:]
        if seen > _MOST_OUTPUT:
            return


def _score(counted: dict[bytes, Counter[str]], question: Question) -> Callable[[bytes], tuple[float, bytes]]:
    holding = Counter(term for counts in counted.values() for term in counts)
    rarity = {
        term: math.log(1 + len(counted) / count) * question.terms.get(term, 0.3) for term, count in holding.items()
    }

    def score(path: bytes) -> tuple[float, bytes]:
        body = sum(rarity[term] * count / (count + 3) for term, count in counted[path].items())
        return -(body + name_match(path.decode("utf-8", "replace"), rarity)), path

    return score
