"""Packs the best places into a token budget: complete chunks if they fit, else their most relevant lines. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sari.ranking.chunks import Chunk
from sari.ranking.rank import Ranked
from sari.ranking.ranker import ReadContent

_BYTES_PER_TOKEN = 4
# Tokens for a snippet's path, line and name in the answer.
_OVERHEAD = 24
_LONGEST_LINE = 200
# The first files are shown with more lines than later ones, because the answer is most often among them.
_LINES = (30, 20, 14, 10, 8)
_LEAST_LINES = 5
# A file's second place is shown if its score is close to the first.
_SECOND = 0.75
_PLACES_A_FILE = 3


@dataclass(frozen=True, slots=True)
class Snippet:
    """Some lines of a file, counted from 1, inclusive. `text` may show fewer of them."""

    path: bytes
    start: int
    end: int
    name: str
    text: str


def pack(ranked: Sequence[Ranked], read_content: ReadContent, max_tokens: int) -> list[Snippet]:
    """Return snippets, best first, until the budget is used. Always returns the first."""
    left = max_tokens * _BYTES_PER_TOKEN
    snippets: list[Snippet] = []
    for path, chunk in _order(ranked):
        content = read_content(path)
        if content is None:
            continue
        most = _LINES[len(snippets)] if len(snippets) < len(_LINES) else _LEAST_LINES
        snippet = _snippet(path, chunk, content.lines, most)
        cost = len(snippet.text.encode("utf-8", "replace")) + len(path) + len(snippet.name) + _OVERHEAD
        if cost > left and snippets:
            break
        left -= cost
        snippets.append(snippet)
    return snippets


def _order(ranked: Sequence[Ranked]) -> list[tuple[bytes, Chunk]]:
    """Return the best place of each file in turn, then, file by file, the others that are nearly as good."""
    firsts = [(one.path, one.places[0].chunk) for one in ranked if one.places]
    others = [
        (one.path, place.chunk)
        for one in ranked
        for place in one.places[1:_PLACES_A_FILE]
        if place.score >= _SECOND * one.places[0].score > 0
    ]
    return firsts + others


def _snippet(path: bytes, chunk: Chunk, lines: Sequence[str], most: int) -> Snippet:
    shown = [line[:_LONGEST_LINE].rstrip() for line in lines[chunk.start - 1 : chunk.end]]
    while shown and not shown[-1]:
        shown.pop()
    skipped = 0
    while skipped < len(shown) and not shown[skipped]:
        skipped += 1
    shown = shown[skipped:]
    if len(shown) > most:
        shown = shown[:most]
    return Snippet(path, chunk.start + skipped, chunk.end, chunk.name, "\n".join(shown))
