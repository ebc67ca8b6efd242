"""Extracts the term index's data from a file: the terms of its text, its definitions, its path and its name.

Never parses: the caller knows the definitions, from a process with limits.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

from sari.languages.read import read_text, stamp_of
from sari.ranking.term_segment import FileTerms
from sari.ranking.terms import count_terms, terms_of_word, words_of

# Larger files are usually data or generated.
MAX_BYTES = 1 << 20
_LOOKS_BINARY = 8_000
# Minified code has few, long lines; its repetitions carry no meaning.
_LONG_LINE = 5_000


def file_terms(root: bytes, path: bytes, names: Iterable[str]) -> FileTerms | None:
    """Read a file with these definitions. Returns None if the file no longer exists."""
    try:
        stamp = stamp_of(os.lstat(os.path.join(root, path)))
    except OSError:
        return None
    read = read_text(root, path, MAX_BYTES)
    shown = path.decode("utf-8", "replace")
    text = b"" if read is None or b"\0" in read[0][:_LOOKS_BINARY] or _minified(read[0]) else read[0]
    file = shown.rpartition("/")[2]
    return FileTerms(
        path,
        stamp if read is None else read[1],
        {
            "body": count_terms(text.decode("utf-8", "replace")),
            "defs": _count(names),
            "path": _count(words_of(shown)),
            "name": _count(words_of(file.rpartition(".")[0] or file)),
        },
    )


def _minified(text: bytes) -> bool:
    return len(text) > _LONG_LINE and len(text) // (text.count(b"\n") + 1) > _LONG_LINE


def _count(words: Iterable[str]) -> Counter[str]:
    return Counter(term for word in words for term in terms_of_word(word))
