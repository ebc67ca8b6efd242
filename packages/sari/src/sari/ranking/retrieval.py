"""Finds the files for a question: BM25F over the fields of the term index and the messages of the history.

Rare terms are scored in every file that contains them, and common ones only in the files found by rare ones, so that a
question costs about the same in a hundred thousand files as in a thousand. Pure, given a corpus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest

from sari.ranking.corpus import SHIFT, Corpus, Norms
from sari.ranking.question import Question
from sari.ranking.term_segment import Row
from sari.ranking.weights import Weights

# How many postings are scored in full: a few milliseconds.
_BUDGET = 8_000
# If even the rarest term is very common, files that contain it less often than this are skipped.
_OFTEN = 3


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A term with its postings and its weight."""

    term: str
    weight: float
    in_question: bool
    rows: Sequence[Row]

    @property
    def postings(self) -> int:
        return sum(len(posting.ids) for row in self.rows for posting in row.values())


@dataclass(frozen=True, slots=True)
class Retrieved:
    """A file that may answer the question."""

    document: int
    path: bytes
    score: float
    # Which share of the question the file contains, from 0 to 1.
    coverage: float


def weigh(corpus: Corpus, question: Question, weights: Weights) -> list[WeightedTerm]:
    """Return the question's terms and similar ones, with their weight in this corpus, rarest first."""
    wanted: dict[str, tuple[float, bool]] = {term: (weight, True) for term, weight in question.terms.items()}
    for term in question.joined:
        wanted.setdefault(term, (weights.joined, False))
    found = []
    for term, (weight, in_question) in wanted.items():
        rows = corpus.rows(term)
        rarity = corpus.inverse_frequency(rows)
        if rarity:
            found.append(WeightedTerm(term, weight * rarity, in_question, rows))
        elif in_question and term in corpus.history.messages:
            found.append(WeightedTerm(term, weight, in_question, rows))
    return sorted(found, key=lambda one: (one.postings, one.term))


def retrieve(
    corpus: Corpus,
    terms: Sequence[WeightedTerm],
    weights: Weights,
    most: int,
    keep: Callable[[bytes], bool] | None = None,
) -> list[Retrieved]:
    """Return the files with the best scores, best first."""
    norms = corpus.norms(weights.b_body, weights.b_defs)
    scores: dict[int, float] = {}
    covered: dict[int, float] = {}
    # With a filter, all files found by the rare terms may be excluded.
    left = _BUDGET if keep is None else 1 << 40
    found_by_rare: list[int] | None = None
    for one in terms:
        if one.postings <= left:
            counts = _everywhere(one, norms, weights)
        elif not scores:
            counts = _often(one, norms, weights)
        else:
            # Terms are sorted by rarity: from here on all are common, and no more files are added.
            if found_by_rare is None:
                found_by_rare = _best(scores, 2 * most)
            counts = _among(one, found_by_rare, norms, weights)
        left -= min(left, one.postings)
        _add_messages(corpus, one, counts, weights)
        for document, count in counts.items():
            gain = one.weight * count / (count + weights.k1)
            scores[document] = scores.get(document, 0.0) + gain
            if one.in_question:
                covered[document] = covered.get(document, 0.0) + one.weight
    total = sum(one.weight for one in terms if one.in_question) or 1.0
    found: list[Retrieved] = []
    for document in sorted(scores, key=lambda one: -scores[one]) if keep else _best(scores, 2 * most):
        path = corpus.path(document)
        if corpus.where.get(path) == document and (keep is None or keep(path)):
            found.append(Retrieved(document, path, scores[document], covered.get(document, 0.0) / total))
            if len(found) == most:
                break
    return found


def _best(scores: dict[int, float], most: int) -> list[int]:
    return list(scores) if len(scores) <= most // 2 else nlargest(most, scores, key=scores.__getitem__)


def _everywhere(one: WeightedTerm, norms: Sequence[Norms], weights: Weights) -> dict[int, float]:
    counts: dict[int, float] = {}
    for number, row in enumerate(one.rows):
        high = number << SHIFT
        for field, posting in row.items():
            factor = weights.field(field)
            scale = _scale(norms[number], field)
            if scale is None:
                for local, count in zip(posting.ids, posting.counts, strict=True):
                    counts[high | local] = counts.get(high | local, 0.0) + factor * count
            else:
                for local, count in zip(posting.ids, posting.counts, strict=True):
                    counts[high | local] = counts.get(high | local, 0.0) + factor * count * scale[local]
    return counts


def _often(one: WeightedTerm, norms: Sequence[Norms], weights: Weights) -> dict[int, float]:
    """Like `_everywhere`, but use the body only where the term occurs often."""
    documents: set[int] = set()
    for number, row in enumerate(one.rows):
        high = number << SHIFT
        for field, posting in row.items():
            if field == "body":
                documents.update(
                    high | local for local, count in zip(posting.ids, posting.counts, strict=True) if count >= _OFTEN
                )
            else:
                documents.update(high | local for local in posting.ids)
    return _among(one, documents, norms, weights)


def _among(one: WeightedTerm, documents: Iterable[int], norms: Sequence[Norms], weights: Weights) -> dict[int, float]:
    counts: dict[int, float] = {}
    for document in documents:
        number, local = document >> SHIFT, document & 0xFFFF
        total = 0.0
        for field, posting in one.rows[number].items():
            at = bisect_left(posting.ids, local)
            if at < len(posting.ids) and posting.ids[at] == local:
                scale = _scale(norms[number], field)
                total += weights.field(field) * posting.counts[at] * (1.0 if scale is None else scale[local])
        if total:
            counts[document] = total
    return counts


def _scale(norms: Norms, field: str) -> Sequence[float] | None:
    match field:
        case "body":
            return norms.body
        case "defs":
            return norms.defs
    return None


def _add_messages(corpus: Corpus, one: WeightedTerm, counts: dict[int, float], weights: Weights) -> None:
    history = corpus.history
    by_path = history.messages.get(one.term)
    if by_path is None or not weights.messages or not one.in_question:
        return
    b = weights.b_messages
    for path, count in by_path.items():
        document = corpus.where.get(path)
        if document is not None:
            scale = 1 - b + b * history.lengths[path] / history.mean_length
            counts[document] = counts.get(document, 0.0) + weights.messages * count / scale
