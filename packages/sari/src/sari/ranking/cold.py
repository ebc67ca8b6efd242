"""Finds the files for a question before there is a term index: ripgrep counts its terms in every file.

Slower and coarser than the index. Used for the first question in a workspace that was never opened.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
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
    rest, seen = b"", 0
    for chunk in ripgrep.stream(
        [*options, "--fixed-strings", f"--max-count={_MOST_A_FILE}", *patterns, "./"], root, cancelled
    ):
        seen += len(chunk)
        *records, rest = (rest + chunk).split(b"\n")
        for record in records:
            path, _, match = record.partition(b"\0")
            counted[path.removeprefix(b"./")][match.decode("utf-8", "replace").lower()] += 1
        if seen > _MOST_OUTPUT:
            break
    kept = {path: counts for path, counts in counted.items() if keep is None or keep(path)}
    return sorted(kept, key=_score(kept, question))[:_MOST_FILES]


def _score(counted: dict[bytes, Counter[str]], question: Question) -> Callable[[bytes], tuple[float, bytes]]:
    holding = Counter(term for counts in counted.values() for term in counts)
    rarity = {
        term: math.log(1 + len(counted) / count) * question.terms.get(term, 0.3) for term, count in holding.items()
    }

    def score(path: bytes) -> tuple[float, bytes]:
        body = sum(rarity[term] * count / (count + 3) for term, count in counted[path].items())
        return -(body + name_match(path.decode("utf-8", "replace"), rarity)), path

    return score
