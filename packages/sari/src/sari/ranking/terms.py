"""Splits source text and questions into terms: identifiers by case and underscore, words by their stems.

The same splitting serves the index and the question. Pure; the caches only remember what the functions would return.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from sari.ranking.stem import stem

_WORD = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_]+")
_MAX_WORD = 64
# From here on the scripts are written without spaces: two characters are a term.
_CJK = "\u2e80"


@lru_cache(maxsize=1 << 17)
def terms_of_word(word: str) -> tuple[str, ...]:
    """The terms of one word: the stem of each part, and of the whole when it has several parts."""
    if len(word) > _MAX_WORD:
        return ()
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
    """The words of a text, in order."""
    return _WORD.findall(text)


def count_terms(text: str) -> Counter[str]:
    """How often each term stands in a text."""
    counts: Counter[str] = Counter()
    for word, times in Counter(_WORD.findall(text)).items():
        for term in terms_of_word(word):
            counts[term] += times
    return counts
