"""Ranks the definitions that the rest of the code uses most: PageRank over files that use each other's names.

A file passes its rank on to the files that define the names it uses, weighted by how specific each name is:
`HttpRequest` identifies a file, `default` does not. A definition counts more if several folders use it. Uses names
alone. Pure.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

_DAMPING = 0.85
_ROUNDS = 15
# A name that more files than this define identifies none of them.
_MOST_DEFINERS = 8
# A file that uses more names of others is generated. Each of them costs time and memory.
_MOST_USED = 500
_TYPE_FACTOR = 3.0
# Chosen on django, where it brings the views beside the much larger database layer.
_FOREMOST_FACTOR = 6.0
# The part of a file's rank that is not passed on, so that a file with only generic words does not give all its rank to
# them.
_UNUSED = 8.0
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


@dataclass(frozen=True, slots=True)
class FileNames:
    """A file's top-level definitions, the names that it mentions, and its weight as a user of other files."""

    # Name → how many lines it has.
    types: Mapping[str, int]
    functions: Mapping[str, int]
    mentions: Collection[str]
    counts: float = 1.0


@dataclass(frozen=True, slots=True)
class Importance:
    """A rank for each file, and for each definition of each file."""

    files: Mapping[bytes, float]
    definitions: Mapping[bytes, Mapping[str, float]]


def specificity(name: str, *, is_type: bool) -> float:
    """Return how likely a mention of a name refers to its definition: higher for types and names of several words."""
    if name.startswith("_"):
        return 0.02
    parts = len(_PARTS.findall(name))
    mixed = name[:1].isupper() and not name.isupper()
    factor = _TYPE_FACTOR if is_type else 1.0
    if parts == 1 and not mixed:
        return 0.05 * factor
    return factor * min(parts, 3) * (1.0 if mixed or parts > 1 else 0.3)


def importance(files: Mapping[bytes, FileNames]) -> Importance:
    """Rank files and their definitions."""
    definers: defaultdict[str, list[bytes]] = defaultdict(list)
    weight: dict[str, float] = {}
    for path, names in files.items():
        for is_type, defined in ((True, names.types), (False, names.functions)):
            for name in defined:
                definers[name].append(path)
                weight[name] = max(weight.get(name, 0.0), specificity(name, is_type=is_type))
    wanted = {name: weight[name] / len(of) ** 2 for name, of in definers.items() if len(of) <= _MOST_DEFINERS}
    uses = {path: _uses(path, names, wanted, definers) for path, names in files.items()}
    ranks = _page_rank(files, uses)
    definitions: dict[bytes, dict[str, float]] = {
        path: dict.fromkeys((*names.types, *names.functions), 0.0) for path, names in files.items()
    }
    for path, links in uses.items():
        total = sum(share for _, _, share in links) + _UNUSED
        for name, target, share in links:
            definitions[target][name] += ranks[path] * files[path].counts * share / total
    spread = _spread(uses)
    for path, names in files.items():
        for name, lines in (*names.functions.items(), *names.types.items()):
            folders = len(spread[name] - {_folder(path)}) / len(definers[name])
            definitions[path][name] *= math.log2(2 + lines) * (1 + math.log2(1 + folders))
    return Importance(ranks, definitions)


def foremost_first(worth: Mapping[bytes, float]) -> list[bytes]:
    """Return files by their worth. The foremost file of each part of the repository counts more, so that a large part
    does not hide the others.
    """
    by_worth = sorted(worth, key=lambda path: (-worth[path], path))
    foremost: dict[bytes, bytes] = {}
    for path in by_worth:
        foremost.setdefault(_part(path), path)
    first = frozenset(foremost.values())
    return sorted(by_worth, key=lambda path: -worth[path] * (_FOREMOST_FACTOR if path in first else 1.0))


def _folder(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def _part(path: bytes) -> bytes:
    """Return the part of the repository that a file belongs to: its first two folders, e.g. `django/views`."""
    return b"/".join(_folder(path).split(b"/")[:2])


def _spread(uses: Mapping[bytes, list[tuple[str, bytes, float]]]) -> defaultdict[str, set[bytes]]:
    """Return the folders that use each name."""
    spread: defaultdict[str, set[bytes]] = defaultdict(set)
    for path, links in uses.items():
        for name, _, _ in links:
            spread[name].add(_folder(path))
    return spread


def _uses(
    path: bytes, names: FileNames, wanted: Mapping[str, float], definers: Mapping[str, list[bytes]]
) -> list[tuple[str, bytes, float]]:
    """Yield the names that a file uses, with the defining file and the share of rank that it gets."""
    own = {*names.types, *names.functions}
    return [
        (name, target, wanted[name])
        for name in sorted(set(names.mentions) & wanted.keys() - own)[:_MOST_USED]
        for target in definers[name]
        if target != path
    ]


def _page_rank(
    files: Mapping[bytes, FileNames], uses: Mapping[bytes, list[tuple[str, bytes, float]]]
) -> dict[bytes, float]:
    count = max(1, len(files))
    edges: dict[bytes, dict[bytes, float]] = {}
    for path, links in uses.items():
        given: defaultdict[bytes, float] = defaultdict(float)
        for _, target, share in links:
            given[target] += share
        total = sum(given.values()) + _UNUSED
        edges[path] = {target: share / total for target, share in given.items()}
    start = {path: names.counts for path, names in files.items()}
    total_start = sum(start.values()) or 1.0
    base = {path: value / total_start for path, value in start.items()}
    ranks = dict(base)
    for _ in range(_ROUNDS):
        following = {path: (1 - _DAMPING) * value for path, value in base.items()}
        lost = 0.0
        for path, out in edges.items():
            lost += ranks[path] * (1 - sum(out.values()))
            for target, share in out.items():
                following[target] += _DAMPING * ranks[path] * share
        for path in following:
            following[path] += _DAMPING * lost * base[path]
        ranks = following
    return {path: rank * count for path, rank in ranks.items()}
