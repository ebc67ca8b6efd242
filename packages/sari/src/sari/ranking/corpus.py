"""The open segments as one corpus: where each file is, the lengths of files, and their history.

A document's number combines its segment's number and its id in the segment. In memory; rebuilt when a segment is added
or removed.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sari.ranking.file_history import FileHistory
from sari.ranking.term_segment import Row, TermSegment

SHIFT = 16


@dataclass(frozen=True, slots=True)
class Norms:
    """Length normalisation factors of a segment's files."""

    body: array[float]
    defs: array[float]


class Corpus:
    """An immutable view of the segments. `where` is the live document of each path."""

    def __init__(self, segments: Sequence[TermSegment], where: Mapping[bytes, int], history: FileHistory) -> None:
        self.segments = tuple(segments)
        self.where = where
        self.history = history
        self.size = max(1, len(where))
        lengths = [segment.body_lengths for segment in self.segments]
        self._mean_body = _mean(lengths)
        self._mean_defs = _mean([segment.defs_lengths for segment in self.segments])
        self._norms: dict[tuple[float, float], list[Norms]] = {}

    def path(self, document: int) -> bytes:
        return self.segments[document >> SHIFT].paths[document & 0xFFFF]

    def length(self, document: int) -> int:
        """Return the number of terms in a file's text."""
        return self.segments[document >> SHIFT].body_lengths[document & 0xFFFF]

    def is_live(self, document: int) -> bool:
        return self.where.get(self.path(document)) == document

    def rows(self, term: str) -> list[Row]:
        """Return the postings of a term, one row for each segment."""
        return [segment.row(term) for segment in self.segments]

    def inverse_frequency(self, rows: Sequence[Row]) -> float:
        """Return how rare a term is; 0 if no file contains it."""
        holding = sum(max((len(posting.ids) for posting in row.values()), default=0) for row in rows)
        if not holding:
            return 0.0
        return math.log(1 + (max(self.size - holding, 0) + 0.5) / (holding + 0.5))

    def norms(self, b_body: float, b_defs: float) -> list[Norms]:
        """Return the length normalisation for each document of each segment."""
        key = (b_body, b_defs)
        if key not in self._norms:
            self._norms[key] = [
                Norms(
                    _normalise(segment.body_lengths, self._mean_body, b_body),
                    _normalise(segment.defs_lengths, self._mean_defs, b_defs),
                )
                for segment in self.segments
            ]
        return self._norms[key]


def _mean(lengths: Sequence[array[int]]) -> float:
    count = sum(1 for some in lengths for length in some if length)
    return sum(sum(some) for some in lengths) / count if count else 1.0


def _normalise(lengths: array[int], mean: float, b: float) -> array[float]:
    return array("f", [1.0 / (1.0 - b + b * length / mean) for length in lengths])
