"""Reduces an English word to a stem, so that `serializer`, `serializing` and `serialization` are one term.

A short suffix stripper for identifiers and comments. It may merge too much (`station`, `state`), which costs little in
a ranking, and the index and the question use the same function. Pure.
"""

from __future__ import annotations

# (suffix, replacement, letters that must remain). Longest first: the first match is used.
_SUFFIXES = (
    ("ization", "iz", 3),
    ("isation", "iz", 3),
    ("ements", "", 4),
    ("ations", "", 4),
    ("ation", "", 4),
    ("ators", "", 4),
    ("ement", "", 4),
    ("ator", "", 4),
    ("ency", "", 4),
    ("encies", "", 4),
    ("ence", "", 4),
    ("ance", "", 4),
    ("able", "", 4),
    ("ible", "", 4),
    ("ment", "", 4),
    ("ness", "", 4),
    ("ized", "iz", 3),
    ("ised", "iz", 3),
    ("ize", "iz", 3),
    ("ise", "iz", 4),
    ("ions", "", 4),
    ("ion", "", 4),
    ("ate", "", 4),
    ("ent", "", 4),
    ("ant", "", 4),
    ("ive", "", 4),
    ("ful", "", 4),
    ("ies", "y", 2),
    ("ied", "y", 2),
    ("ing", "", 3),
    ("ers", "", 4),
    ("ors", "", 4),
    ("ly", "", 4),
    ("ed", "", 3),
    ("er", "", 4),
    ("or", "", 4),
    ("at", "", 4),
    ("e", "", 3),
)
_BY_LAST_LETTER = {
    last: tuple(one for one in _SUFFIXES if one[0][-1] == last) for last in {s[-1] for s, _, _ in _SUFFIXES}
}
_KEPT_DOUBLE = frozenset("lsz")
_VOWELS = frozenset("aeiouy")


def stem(word: str) -> str:
    """Return the stem of a lower-case word."""
    word = _singular(word)
    while len(word) > 3:
        shorter = _shorten(word)
        if shorter == word:
            break
        word = shorter
    return word


def _singular(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes", "zes")):
        return word[:-2]
    return word[:-1]


def _shorten(word: str) -> str:
    for suffix, replacement, least in _BY_LAST_LETTER.get(word[-1], ()):
        if not word.endswith(suffix):
            continue
        base = word[: -len(suffix)]
        if len(base) < least or not _VOWELS.intersection(base):
            continue
        # `mapped` is `map`, but `called` is `call`.
        if suffix in ("ing", "ed") and len(base) > 3 and base[-1] == base[-2] and base[-1] not in _KEPT_DOUBLE:
            base = base[:-1]
        return base + replacement
    return word
