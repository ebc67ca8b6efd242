"""Splits source text and questions into terms: identifiers by case and underscore, words by their stems.

The index and the question use the same splitting. Pure; the caches do not affect results.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from sari.ranking.stem import stem

_WORD = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_]+")
_MAX_WORD = 64
# From this character on, scripts have no spaces: two characters form a term.
_CJK = "\u2e80"


def terms_of_word(word: str) -> tuple[str, ...]:
    """Return the terms of one word: the stem of each part, and of the complete word if it has several parts. A word that is
    too long for a name has none, and is not cached: it can be as long as its file.
    """
    return _terms_of_word(word) if len(word) <= _MAX_WORD else ()


@lru_cache(maxsize=1 << 17)
def _terms_of_word(word: str) -> tuple[str, ...]:
    if word.isascii() and word.islower() and word.isalpha():
        return (stem(word),) if len(word) > 1 else ()
    if any(letter >= _CJK for letter in word):
        return tuple(word[at : at + 2] for at in range(max(1, len(word) - 1)))
    parts = [part.lower() for part in _PART.findall(word)]
    whole = "".join(parts)
    found = [stem(part) for part in parts if len(part) > 1 and not (part.isdigit() and len(part) < 3)]
    if len(parts) > 1 and len(whole) > 2:
        found.append(stem(whole))
    return tuple(dict.fromkeys(found))


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order."""
    return _WORD.findall(text)


def count_terms(text: str) -> Counter[str]:
    """Return how often each term occurs in a text."""
    counts: Counter[str] = Counter()
    for word, times in Counter(_WORD.findall(text)).items():
        for term in terms_of_word(word):
            counts[term] += times
    return counts
