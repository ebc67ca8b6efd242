"""Answers a question from a corpus: finds files with the term index, reads the best of them, and sorts places.

The caller reads files: `read_content` returns a file's current lines and symbols, or None if it no longer exists.
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
MOST_READ = 24


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file's current content."""

    lines: Sequence[str]
    chunks: Sequence[CountedChunk]


def file_content(lines: Sequence[str], symbols: Sequence[Symbol]) -> FileContent:
    """Return the content of a file with these lines and symbols."""
    return FileContent(lines, count(lines, cut(symbols, lines)))


ReadContent = Callable[[bytes], FileContent | None]


def answer(
    corpus: Corpus,
    text: str,
    read_content: ReadContent,
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
    scored_files: list[tuple[Retrieved, Sequence[ScoredChunk]]] = []
    for one in first:
        if len(scored_files) == MOST_READ or cancelled():
            break
        file = read_content(one.path)
        if file is not None:
            scored = score_chunks(file.chunks, terms, question.names, weights.exact_name)
            scored_files.append((by_path[one.path], scored))
    return rank(scored_files, question, terms, history, weights)
