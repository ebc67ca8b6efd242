"""Converts a question (a sentence, a commit message, an identifier or a mix of them) into weighted terms. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

from sari.ranking.terms import terms_of_word, words_of
from sari.ranking.trailers import without_trailers

_STOP_WORDS = (
    "a an and are as at be been but by can could do does done for from had has have how i if in into is it its may might "
    "no not of on onto or our should so that the their them then there these this those to up was we were what when where "
    "which while who why will with would you your via per using used use uses without within across after before being "
    "also only just like any all more most than too very"
)
_STOP = frozenset(_STOP_WORDS.split())
# Words that occur in most questions and say little about the place.
_WEAK_WORDS = (
    "work works implementation implement code function functions class method methods logic support add added adds fix "
    "fixes fixed remove removed update updated change changed changes make made allow allowed handle handles handling way "
    "thing new get set type types value values refs see issue bug thanks"
)
_WEAK = frozenset(term for word in _WEAK_WORDS.split() for term in terms_of_word(word))
_WEAK_WEIGHT = 0.4
_PART_WEIGHT = 0.7
# `printer: fix …`, `net/http: …`, `fix(router)!: …`: many projects begin a message with the part that it is about.
_SCOPE = re.compile(r"\s*(?:[A-Za-z]+\(([^()\n]{1,60})\)!?|([\w./,\- ]{1,40})):\s")
# The kinds of changes, which name no part of the project.
_CHANGE_KIND_WORDS = (
    "feat feature fix bugfix bug chore docs doc documentation test tests refactor style perf build ci revert lint impl "
    "release deps wip"
)
_CHANGE_KINDS = frozenset(_CHANGE_KIND_WORDS.split())
# A question with one of these is about the types of an interface, which some languages declare in a file beside the code.
_ABOUT_TYPES_WORDS = "type types typing typings typed typescript ts dts stub stubs declaration declarations"
_ABOUT_TYPES = frozenset(_ABOUT_TYPES_WORDS.split())
# How code writes names, unlike prose: `max_size`, `maxSize`, `HTTPError`.
_CODE_SPELLING = re.compile(r"[^\W_]_[^\W_]|[a-z][A-Z]|[A-Z]{2}[a-z]")
_WORD = re.compile(r"\w+")
_QUOTED = re.compile(r"`([^`\n]{2,80})`")
_PATH = re.compile(r"[\w./-]+")
_LONGEST_SUFFIX = 5
_MOST_IDENTIFIERS = 50
# The first words of a question say what it is about; the body of a long message counts less.
_FIRST_WORDS = 25
_LATER_WEIGHT = 0.3
_MOST_WORDS = 200


@dataclass(frozen=True, slots=True)
class Question:
    """A parsed question: terms with their weights, neighbouring words joined into one term, literal names, the terms of
    the part of the project that it begins with, the words that are spelled as in code, and the files it mentions.
    """

    terms: dict[str, float]
    joined: frozenset[str]
    names: frozenset[str]
    wants_tests: bool
    scope: frozenset[str] = frozenset()
    identifiers: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    wants_types: bool = False


def read_question(text: str) -> Question:
    """Parse a question."""
    text = without_trailers(text)
    words = words_of(text)[:_MOST_WORDS]
    telling = [word for word in words if word.lower() not in _STOP] or words
    terms: dict[str, float] = {}
    for number, word in enumerate(telling):
        place = 1.0 if number < _FIRST_WORDS else _LATER_WEIGHT
        for term, weight in _weighted(word):
            terms[term] = max(terms.get(term, 0.0), weight * place)
    # The body of a commit message often ends with "add a test", while the subject is about the code.
    subject = {word.lower() for word in words_of(text.strip().partition("\n")[0])}
    return Question(
        terms,
        frozenset(_joined(telling[:_FIRST_WORDS])) - terms.keys(),
        frozenset(telling),
        bool(subject & {"test", "tests", "testing", "spec"}),
        frozenset(_scope_terms(text)),
        frozenset(islice(_identifiers(text), _MOST_IDENTIFIERS)),
        frozenset(_paths(text)),
        bool(subject & _ABOUT_TYPES),
    )


def _scope_terms(text: str) -> Iterator[str]:
    found = _SCOPE.match(text)
    if found is not None:
        for word in words_of(found[1] or found[2]):
            if word.lower() not in _CHANGE_KINDS:
                yield from terms_of_word(word)


def _identifiers(text: str) -> Iterator[str]:
    for quoted in _QUOTED.finditer(text):
        yield from words_of(quoted[1])
    for found in _WORD.finditer(text):
        is_called = text.startswith("(", found.end())
        if is_called or _CODE_SPELLING.search(found[0]):
            yield found[0]


def _paths(text: str) -> Iterator[str]:
    """Yield what may be the path or the name of a file."""
    for found in _PATH.finditer(text):
        path = found[0].strip("./-")
        name, dot, suffix = path.rpartition("/")[2].rpartition(".")
        if len(name) > 1 and dot and suffix.isalnum() and len(suffix) <= _LONGEST_SUFFIX:
            yield path


def _weighted(word: str) -> Iterator[tuple[str, float]]:
    terms = terms_of_word(word)
    for term in terms:
        if term.isdigit():
            continue
        weight = _WEAK_WEIGHT if term in _WEAK else 1.0
        # For `HTTPException`, the complete word counts more than its parts.
        yield term, weight * (_PART_WEIGHT if len(terms) > 1 and term != terms[-1] else 1.0)


def _joined(words: list[str]) -> Iterator[str]:
    """Join neighbouring words, because `radix tree` may be written `radixtree`."""
    for first, second in pairwise(words):
        yield from terms_of_word((first + second).lower())
