"""Answers a question from a corpus: finds files with the term index, reads the best of them, and sorts places.

The caller reads files: `read_content` returns a file's current lines and symbols, or None if it no longer exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sari.languages.parse import Symbol
from sari.ranking.chunks import CountedChunk, count, cut, score_chunks
from sari.ranking.corpus import Corpus
from sari.ranking.question import read_question
from sari.ranking.rank import Candidate, Evidence, Ranked, rank, subjects
from sari.ranking.retrieval import Retrieved, retrieve, weigh
from sari.ranking.similar_commits import changed_by_similar
from sari.ranking.terms import terms_of_word
from sari.ranking.weights import DEFAULT, Weights

_MOST_RETRIEVED = 150
# Reading a file takes a third of a millisecond, or a tenth if it was read before.
MOST_READ = 24
# With fewer, as in a shallow clone, the history does not show which files change often.
_LEAST_COMMITS = 50
_USUAL_LENGTH = 300


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file's current content."""

    lines: Sequence[str]
    chunks: Sequence[CountedChunk]
    # About how much memory it takes.
    bytes: int = 0


def file_content(lines: Sequence[str], symbols: Sequence[Symbol]) -> FileContent:
    """Return the content of a file with these lines and symbols."""
    chunks = count(lines, cut(symbols, lines))
    size = sum(60 + len(line) for line in lines) + sum(600 + 150 * len(one.words) for one in chunks)
    return FileContent(lines, chunks, size)


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
    evidence = Evidence(
        {file.path: _prior(corpus, file, weights) for file in retrieved},
        changed_by_similar(corpus.history.each, question.terms),
        subjects(retrieved),
    )
    first = rank((Candidate(file) for file in retrieved), question, terms, evidence, weights)
    identifiers = _weighted_identifiers(question.identifiers, terms)
    by_path = {file.path: file for file in retrieved}
    candidates: list[Candidate] = []
    for one in first:
        if len(candidates) == MOST_READ or cancelled():
            break
        file = read_content(one.path)
        if file is not None:
            scored = score_chunks(file.chunks, terms, question.names, weights.exact_name)
            candidates.append(Candidate(by_path[one.path], scored, _found_in(file.chunks, identifiers, weights)))
    return rank(candidates, question, terms, evidence, weights)


def _prior(corpus: Corpus, file: Retrieved, weights: Weights) -> float:
    """Return how likely any question is about a file: by how often it changed, or by its length if that is not known."""
    if len(corpus.history.each.paths) >= _LEAST_COMMITS:
        return weights.activity * corpus.history.activity(file.path)
    return weights.length * math.log1p(corpus.length(file.document) / _USUAL_LENGTH)


def _weighted_identifiers(identifiers: frozenset[str], terms: Mapping[str, float]) -> dict[str, float]:
    """Return the identifiers that the corpus contains, each with the weight of its rarest term."""
    weighed = {word: max((terms.get(term, 0.0) for term in terms_of_word(word)), default=0.0) for word in identifiers}
    return {word: weight for word, weight in weighed.items() if weight}


def _found_in(chunks: Sequence[CountedChunk], identifiers: Mapping[str, float], weights: Weights) -> float:
    """Return the score of the identifiers that a file contains as they are written, and of those that it defines."""
    if not identifiers:
        return 0.0
    names = {one.chunk.name for one in chunks}
    score = 0.0
    for word, weight in identifiers.items():
        if word in names:
            score += weights.defined_identifier * weight
        if any(word in one.words for one in chunks):
            score += weights.identifier * weight
    return score
