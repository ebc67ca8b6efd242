"""Extracts a file's trigrams: three consecutive word characters, ASCII, lower case.

37 characters make 50,653 trigrams, few enough for a directory without hashing. If in doubt, there are more trigrams: a
file may be searched in vain, but is never left out.
"""

from __future__ import annotations

from collections.abc import Iterable

ALPHABET = b"0123456789_abcdefghijklmnopqrstuvwxyz"
COUNT = len(ALPHABET) ** 3

# One pass of bytes.translate folds case and replaces every non-word character with a space.
_FOLD = bytes(
    byte
    if (byte := (code + 32 if 65 <= code <= 90 else code)) in ALPHABET  # A-Z
    else 32
    for code in range(256)
)
_DIGIT = bytes(ALPHABET.find(code) if code in ALPHABET else 0 for code in range(256))
# If case is ignored, two characters outside ASCII fold to ASCII letters: the Kelvin sign and the long s.
_KELVIN, _LONG_S = "\u212a".encode(), "\u017f".encode()


def words(text: bytes) -> set[bytes]:
    """Return the runs of word characters in a text, in lower case."""
    if _KELVIN in text or _LONG_S in text:
        text = text.replace(_KELVIN, b"k").replace(_LONG_S, b"s")
    return set(text.translate(_FOLD).split())


def of_word(word: bytes) -> list[int]:
    """Return the trigrams of one run of lower-case word characters, possibly with duplicates."""
    digits = word.translate(_DIGIT)
    return [a * 1369 + b * 37 + c for a, b, c in zip(digits, digits[1:], digits[2:])]  # noqa: B905 — the shortest ends it


def of_runs(runs: Iterable[str]) -> frozenset[int]:
    """Return the trigrams that a text with all these runs of word characters must contain."""
    trigrams: set[int] = set()
    for run in runs:
        trigrams.update(of_word(run.lower().encode("ascii")))
    return frozenset(trigrams)
