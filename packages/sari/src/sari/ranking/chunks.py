"""Splits a file into symbol-sized chunks and scores each for a question. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sari.languages.parse import Symbol
from sari.ranking.terms import terms_of_word

_CUT_AT = frozenset(
    {
        "class",
        "interface",
        "struct",
        "enum",
        "trait",
        "impl",
        "function",
        "method",
        "constructor",
        "type",
        "module",
        "namespace",
        "macro",
    }
)
_TYPES = frozenset({"class", "interface", "struct", "trait", "enum", "type", "module", "namespace"})
_LONGEST = 60
_SHORTEST_UNNAMED = 3
_WORD = re.compile(r"\w+")
# The usual number of words in a chunk.
_USUAL_WORDS = 150
_NAME_COUNT = 3
_K1 = 1.2
_COMMENT = re.compile(r"\s*(?:#|//|/\*|\*|--|;;|\"\"\"|'''|@|#\[|<!--)")
_MOST_LEADING = 12


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some lines of a file, counted from 1, inclusive; named after the definition that begins there, if any."""

    start: int
    end: int
    name: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class CountedChunk:
    """A chunk with its word counts."""

    chunk: Chunk
    words: Mapping[str, int]
    length: int


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    chunk: Chunk
    score: float


def cut(symbols: Sequence[Symbol], lines: Sequence[str]) -> list[Chunk]:
    """Return chunks that cover every line: a definition from its first line (with its comment) to its end or the next
    one.
    """
    count = len(lines)
    starts: dict[int, Symbol] = {}
    cuts = {1}
    for symbol in symbols:
        if symbol.kind in _CUT_AT and 1 <= symbol.line <= count:
            line = _with_comment(lines, symbol.line)
            starts.setdefault(line, symbol)
            cuts.add(line)
            cuts.add(symbol.end_line + 1)
    edges = sorted(line for line in cuts if line <= count)
    chunks: list[Chunk] = []
    for start, after in pairwise([*edges, count + 1] if edges else []):
        defined = starts.get(start)
        name, kind = (defined.name, defined.kind) if defined else ("", "")
        if not name and chunks and after - start < _SHORTEST_UNNAMED:
            last = chunks[-1]
            chunks[-1] = Chunk(last.start, after - 1, last.name, last.kind)
            continue
        while after - start > _LONGEST * 1.5:
            chunks.append(Chunk(start, start + _LONGEST - 1, name, kind))
            start += _LONGEST
        chunks.append(Chunk(start, after - 1, name, kind))
    return chunks


def _with_comment(lines: Sequence[str], line: int) -> int:
    """Return the first line of the comment or decorators directly above a definition."""
    first = line
    while first > 1 and line - first < _MOST_LEADING and _COMMENT.match(lines[first - 2]):
        first -= 1
    return first


def count(lines: Sequence[str], chunks: Sequence[Chunk]) -> list[CountedChunk]:
    """Return a file's chunks with their words, which are the same for every question."""
    counted = []
    for chunk in chunks:
        words = _WORD.findall("\n".join(lines[chunk.start - 1 : chunk.end]))
        counted.append(CountedChunk(chunk, Counter(words), len(words)))
    return counted


def score_chunks(
    chunks: Sequence[CountedChunk], terms: Mapping[str, float], names: frozenset[str], exact_name: float
) -> list[ScoredChunk]:
    """Return each chunk with its score: BM25 over its words, more for its name, most if the question names it exactly."""
    known: dict[str, tuple[str, ...]] = {}
    scored: list[ScoredChunk] = []
    for one in chunks:
        chunk = one.chunk
        counts: dict[str, int] = {}
        for word, times in one.words.items():
            held = known.get(word)
            if held is None:
                held = known[word] = tuple(term for term in terms_of_word(word) if term in terms)
            for term in held:
                counts[term] = counts.get(term, 0) + times
        if chunk.name:
            for term in terms_of_word(chunk.name):
                if term in terms:
                    counts[term] = counts.get(term, 0) + _NAME_COUNT
        scale = _K1 * (0.5 + 0.5 * one.length / _USUAL_WORDS)
        score = 0.0
        for term, times in counts.items():
            score += terms[term] * times / (times + scale)
        if chunk.name in names:
            score += exact_name * (1.0 if chunk.kind in _TYPES else 0.6)
        scored.append(ScoredChunk(chunk, score))
    return scored
