"""Finds the files that earlier commits with a similar message changed. Pure.

A question often repeats, in other words, what a commit once did: the files of that commit are good places to look. Each
commit is compared by itself. A file's messages taken together would hide the one that fits among many that do not.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# How strongly a long message counts less than a short one with the same terms.
_B = 0.6
# Above 1, one very similar commit counts more than several that share a word with the question.
_POWER = 1.5
# The oldest of the commits counts exp(-0.5) of the newest.
_AGE = 0.5
# A file's score where half of the highest possible one is reached.
_HALF = 0.5
# A smaller share of the question is chance.
_LEAST_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Commits:
    """Commits, newest first: by term the numbers of those whose message contains it; lengths; the files changed."""

    postings: Mapping[str, array[int]] = field(default_factory=dict)
    lengths: Sequence[int] = ()
    paths: Sequence[Sequence[bytes]] = ()


def collect(commits: Iterable[tuple[Iterable[str], Sequence[bytes]]]) -> Commits:
    """Return the commits with these different terms and files, newest first."""
    postings: defaultdict[str, array[int]] = defaultdict(lambda: array("L"))
    lengths: list[int] = []
    changed: list[Sequence[bytes]] = []
    for number, (terms, paths) in enumerate(commits):
        length = 0
        for term in terms:
            postings[term].append(number)
            length += 1
        lengths.append(length)
        changed.append(paths)
    return Commits(dict(postings), lengths, changed)


def changed_by_similar(commits: Commits, terms: Mapping[str, float]) -> dict[bytes, float]:
    """Return the files that commits similar to these weighted terms changed, each with a score between 0 and 1."""
    count = len(commits.paths)
    found: defaultdict[int, float] = defaultdict(float)
    total = 0.0
    for term, weight in terms.items():
        # A term that no message contains counts too: a commit that shares only the others is less similar.
        holding = commits.postings.get(term, ())
        gain = weight * math.log(1 + (count - len(holding) + 0.5) / (len(holding) + 0.5))
        total += gain
        for number in holding:
            found[number] += gain
    mean = sum(commits.lengths) / count if count else 1.0
    scores: defaultdict[bytes, float] = defaultdict(float)
    for number, gain in found.items():
        share = gain / total if total else 0.0
        if share <= _LEAST_SHARE:
            continue
        similarity = (share / (1 - _B + _B * commits.lengths[number] / mean)) ** _POWER
        paths = commits.paths[number]
        each = similarity * math.exp(-_AGE * number / count) / math.sqrt(len(paths))
        for path in paths:
            scores[path] += each
    return {path: score / (score + _HALF) for path, score in scores.items()}
