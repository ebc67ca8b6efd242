"""Each file's git history: the words of its commit messages, and how often and how recently it changed.

Pure: parses the output of `git log`; the caller runs git. Kept in memory, rebuilt when HEAD moves.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sari.ranking.similar_commits import Commits, collect
from sari.ranking.terms import count_terms
from sari.ranking.trailers import without_trailers

MOST_COMMITS = 3_000
# A commit that touches many files (a rename, a formatter) says nothing about any of them.
_MOST_FILES = 20
_MOST_MESSAGE = 4_000
# For each term of a message and each file. Ordinary histories have half a million.
_MOST_PAIRS = 2_000_000
RECORD, FIELD = "\x01", "\x02"
LOG_FORMAT = f"--format={RECORD}%B{FIELD}".replace(RECORD, "%x01").replace(FIELD, "%x02")


@dataclass(frozen=True, slots=True)
class FileHistory:
    """Term → path → number of messages; for each path the length of its messages and its number of commits; and the
    commits themselves.
    """

    messages: Mapping[str, Mapping[bytes, int]] = field(default_factory=dict)
    lengths: Mapping[bytes, int] = field(default_factory=dict)
    commits: Mapping[bytes, int] = field(default_factory=dict)
    mean_length: float = 1.0
    each: Commits = field(default_factory=Commits)

    def activity(self, path: bytes) -> float:
        """Return how often the file changed recently, on a logarithmic scale."""
        return math.log1p(self.commits.get(path, 0))


def parse_log(output: bytes) -> FileHistory:
    """Parse `git log --name-only -z` in LOG_FORMAT: newest first, paths relative to the workspace."""
    messages: defaultdict[str, Counter[bytes]] = defaultdict(Counter)
    lengths: Counter[bytes] = Counter()
    commits: Counter[bytes] = Counter()
    each: list[tuple[Collection[str], list[bytes]]] = []
    left = _MOST_PAIRS
    for record in output.split(RECORD.encode())[1:]:
        message, _, names = record.partition(FIELD.encode())
        paths = [path for path in (name.strip(b"\n") for name in names.split(b"\0")) if path]
        if not paths or len(paths) > _MOST_FILES:
            continue
        terms = count_terms(without_trailers(message[:_MOST_MESSAGE].decode("utf-8", "replace")))
        left -= len(terms) * len(paths)
        if left < 0:
            # The rest is older, and says less.
            break
        each.append((terms, paths))
        for path in paths:
            commits[path] += 1
            lengths[path] += len(terms)
        for term in terms:
            by_path = messages[term]
            for path in paths:
                by_path[path] += 1
    mean = sum(lengths.values()) / len(lengths) if lengths else 1.0
    return FileHistory(messages, lengths, commits, mean, collect(each))
