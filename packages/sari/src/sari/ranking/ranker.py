"""Answers a question from a corpus: finds files with the term index, reads the best of them, and sorts places.

The caller reads files: `look` returns a file's current lines and symbols, or None if it no longer exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sari.languages.parse import Symbol
from sari.ranking.chunks import CountedChunk, ScoredChunk, count, cut, score_chunks
from sari.ranking.corpus import Corpus
from sari.ranking.question import read_question
from sari.ranking.rank import History, Ranked, rank
from sari.ranking.retrieval import Retrieved, retrieve, weigh
from sari.ranking.similar_commits import changed_by_similar
from sari.ranking.weights import DEFAULT, Weights

_MOST_RETRIEVED = 150
# Reading a file takes a third of a millisecond, or a tenth if it was read before.
MOST_LOOKED_INTO = 24


@dataclass(frozen=True, slots=True)
class Looked:
    """A file's current content."""

    lines: Sequence[str]
    chunks: Sequence[CountedChunk]


def looked_into(lines: Sequence[str], symbols: Sequence[Symbol]) -> Looked:
    """Return the content of a file with these lines and symbols."""
    return Looked(lines, count(lines, cut(symbols, lines)))


Look = Callable[[bytes], Looked | None]


def answer(
    corpus: Corpus,
    text: str,
    look: Look,
    *,
    keep: Callable[[bytes], bool] | None = None,
    weights: Weights = DEFAULT,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[Ranked]:
    """Return the files that answer a question best, best first, each with its places."""
    question = read_question(text)
    weighted = weigh(corpus, question, weights)
    terms = {one.term: one.weight for one in weighted}
    retrieved = retrieve(corpus, weighted, weights, _MOST_RETRIEVED, keep)
    history = History(
        {file.path: corpus.history.activity(file.path) for file in retrieved},
        changed_by_similar(corpus.history.each, question.terms),
    )
    first = rank(((file, ()) for file in retrieved), question, terms, history, weights)
    by_path = {file.path: file for file in retrieved}
    looked: list[tuple[Retrieved, Sequence[ScoredChunk]]] = []
    for one in first:
        if len(looked) == MOST_LOOKED_INTO or cancelled():
            break
        file = look(one.path)
        if file is not None:
            scored = score_chunks(file.chunks, terms, question.names, weights.exact_name)
            looked.append((by_path[one.path], scored))
    return rank(looked, question, terms, history, weights)
