"""Sorts the retrieved files into their final order: by best place, name, kind, tests and history. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sari.ranking.chunks import ScoredChunk
from sari.ranking.file_kind import FileKind, foreign_platform, is_stub, kind_of, only_declares
from sari.ranking.question import Question
from sari.ranking.retrieval import Retrieved
from sari.ranking.short_cache import cached_if_short
from sari.ranking.terms import terms_of_word, words_of
from sari.ranking.weights import Weights

# These names carry no meaning, so the folder's name is used instead.
_GENERIC = frozenset({"mod", "lib", "index", "__init__", "main", "init"})
# What the name of a test adds to the name of the file that it tests.
_TEST_AFFIX = re.compile(r"^(?:tests?|spec)(?=[_-])|(?:tests?|spec)$")
_SEPARATOR = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of the files besides their text: how likely any question is about a file, how much commits similar to
    this one changed it, and the names that the tests among all files found are about (see `subjects`).
    """

    prior: Mapping[bytes, float] = field(default_factory=dict)
    similar: Mapping[bytes, float] = field(default_factory=dict)
    tested: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A retrieved file with what was found in it, if it was read: its places, and the score of the question's
    identifiers.
    """

    file: Retrieved
    places: Sequence[ScoredChunk] = ()
    identifiers: float = 0.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """A ranked file with its places, best first."""

    path: bytes
    score: float
    places: tuple[ScoredChunk, ...]


def rank(
    candidates: Iterable[Candidate],
    question: Question,
    terms: Mapping[str, float],
    evidence: Evidence,
    weights: Weights,
) -> list[Ranked]:
    """Return the files, best first."""
    found = []
    # The weight of the complete question, to which the other evidence is relative.
    total = sum(terms.get(term, 0.0) for term in question.terms)
    for one in candidates:
        file, places = one.file, tuple(sorted(one.places, key=lambda one: (-one.score, one.chunk.start)))
        best = places[0].score if places else 0.0
        path = file.path.decode("utf-8", "replace")
        kind = kind_of(path)
        score = (file.score + weights.chunk * best) * (1 + weights.coverage * file.coverage)
        score += weights.similar_commits * total * evidence.similar.get(file.path, 0.0)
        score *= 1 + evidence.prior.get(file.path, 0.0)
        score += weights.file_name * name_match(path, terms) + one.identifiers
        score += weights.scope * total * scope_match(path, question.scope)
        score += weights.mentioned * total * is_mentioned(path, question.paths)
        if kind is not FileKind.TEST:
            score += weights.tested * evidence.tested.get(_subject(path, is_test=False), 0.0)
        score *= _kind_factor(kind, question, weights) * _variant_factor(path, question, weights)
        found.append(Ranked(file.path, score, places))
    return sorted(found, key=lambda one: (-one.score, one.path))


def subjects(files: Iterable[Retrieved]) -> dict[str, float]:
    """Return the names of what the tests among these files test, each with the best score of its tests."""
    found: dict[str, float] = {}
    for file in files:
        path = file.path.decode("utf-8", "replace")
        if kind_of(path) is FileKind.TEST:
            name = _subject(path, is_test=True)
            found[name] = max(found.get(name, 0.0), file.score)
    found.pop("", None)
    return found


def _subject(path: str, *, is_test: bool) -> str:
    """Return a file's name in a form that it shares with its test; empty for a name without meaning."""
    name = path.rpartition("/")[2].partition(".")[0]
    if name in _GENERIC:
        return ""
    folded = name.lower()
    return _SEPARATOR.sub("", _TEST_AFFIX.sub("", folded) if is_test else folded)


def is_mentioned(path: str, mentioned: frozenset[str]) -> bool:
    """Whether one of these is the file's path or the end of it."""
    return any(path == one or path.endswith(f"/{one}") for one in mentioned)


def name_match(path: str, terms: Mapping[str, float]) -> float:
    """Return how much of the question the file's name contains, reduced by the part of the name not in the question."""
    parts, whole = _name_parts(path)
    weight = sum(terms.get(part, 0.0) for part in parts) + (terms.get(whole, 0.0) if whole not in parts else 0.0)
    if not weight or not parts:
        return 0.0
    return weight * sum(part in terms for part in parts) / len(parts)


def scope_match(path: str, scope: frozenset[str]) -> float:
    """Return the share of a question's scope that the path contains."""
    return len(scope & _path_terms(path)) / len(scope) if scope else 0.0


@cached_if_short(1 << 14)
def _path_terms(path: str) -> frozenset[str]:
    return frozenset(term for word in words_of(path) for term in terms_of_word(word))


@cached_if_short(1 << 14)
def _name_parts(path: str) -> tuple[tuple[str, ...], str]:
    folder, _, file = path.rpartition("/")
    name = file.partition(".")[0] or file
    if name in _GENERIC and folder:
        name = folder.rpartition("/")[2]
    parts = list(dict.fromkeys(term for word in words_of(name) for term in terms_of_word(word)))
    whole = max(parts, key=len, default="")
    return tuple(part for part in parts if part != whole or len(parts) == 1), whole


def _kind_factor(kind: FileKind, question: Question, weights: Weights) -> float:
    match kind:
        case FileKind.SOURCE:
            return 1.0
        case FileKind.TEST:
            return weights.wanted_tests if question.wants_tests else weights.tests
        case FileKind.DOCUMENT:
            return weights.documents
        case FileKind.RECORD:
            return weights.records
        case FileKind.AUXILIARY:
            return weights.auxiliary
        case FileKind.VENDORED:
            return weights.vendored


def _variant_factor(path: str, question: Question, weights: Weights) -> float:
    """Return a lower factor for a declaration of something defined elsewhere, and for another platform's variant of a
    file.
    """
    factor = weights.declarations if only_declares(path) else 1.0
    if question.wants_types and is_stub(path):
        factor = weights.wanted_types
    platform = foreign_platform(path)
    if platform is not None and platform not in question.terms:
        factor *= weights.foreign_platform
    return factor
