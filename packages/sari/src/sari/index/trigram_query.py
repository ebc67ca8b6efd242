"""Computes the trigrams that a file must contain for a query to match in it.

Parses ripgrep's regex syntax only far enough to find runs of word characters that every match contains. Syntax that it
does not understand requires nothing: the condition may be too weak, never too strong. ripgrep evaluates the query
itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sari.index.trigrams import of_runs

_WORD = re.compile(r"[0-9A-Za-z_]+")
_BOUNDARY = re.compile(r"\{(?:start|end|start-half|end-half)\}")
_REPEAT = re.compile(r"\{\s*(\d*)\s*(?:,\s*\d*\s*)?\}")
_FLAGS = re.compile(r"\?[A-Za-z-]*([:)])|\?P?<[^>=!]*>")


@dataclass(frozen=True, slots=True)
class TrigramQuery:
    """Requires all of `trigrams`, and at least one alternative of each element of `either`."""

    trigrams: frozenset[int] = frozenset()
    either: tuple[tuple[TrigramQuery, ...], ...] = ()

    @property
    def matches_all(self) -> bool:
        return not self.trigrams and not self.either


MATCH_ALL = TrigramQuery()


class _UnsupportedSyntax(Exception):
    pass


def by_literal(text: str) -> TrigramQuery:
    """Return the condition for a literal."""
    return TrigramQuery(of_runs(_WORD.findall(text)))


def by_regex(pattern: str) -> TrigramQuery:
    """Return the condition for a regex; it is empty if the regex is not understood."""
    reader = _Reader(pattern)
    try:
        query = reader.alternation()
        return query if reader.at == len(pattern) else MATCH_ALL
    except (_UnsupportedSyntax, RecursionError):
        return MATCH_ALL


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def _peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def alternation(self) -> TrigramQuery:
        branches = [self._sequence()]
        while self._peek() == "|":
            self.at += 1
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        if any(branch.matches_all for branch in branches):
            return MATCH_ALL
        return TrigramQuery(either=(tuple(branches),))

    def _sequence(self) -> TrigramQuery:
        runs: list[str] = []
        run = ""
        parts: list[TrigramQuery] = []
        while (char := self._peek()) and char not in "|)":
            atom = self._atom()
            optional, repeated = self._quantifiers()
            if isinstance(atom, str) and not optional and not repeated:
                run += atom
                continue
            # A repeated character may be followed by itself, so the run ends with its first occurrence.
            if isinstance(atom, str) and not optional:
                run += atom
            runs.append(run)
            run = ""
            if isinstance(atom, TrigramQuery) and not optional:
                parts.append(atom)
        runs.append(run)
        trigrams = of_runs(runs).union(*(part.trigrams for part in parts))
        return TrigramQuery(trigrams, tuple(choice for part in parts for choice in part.either))

    def _atom(self) -> str | TrigramQuery:
        """Return a word character, or the condition of a group; an empty condition for everything else."""
        char = self._peek()
        self.at += 1
        if char == "\\":
            self._escape()
            return MATCH_ALL
        if char == "[":
            self._char_class()
            return MATCH_ALL
        if char == "(":
            return self._group()
        return char if _WORD.fullmatch(char) and char.isascii() else MATCH_ALL

    def _group(self) -> TrigramQuery:
        if self._peek() == "?":
            opened = _FLAGS.match(self.pattern, self.at)
            if opened is None or "x" in opened.group().partition("<")[0]:
                raise _UnsupportedSyntax
            self.at = opened.end()
            if opened.group(1) == ")":
                return MATCH_ALL
        inner = self.alternation()
        if self._peek() != ")":
            raise _UnsupportedSyntax
        self.at += 1
        return inner

    def _escape(self) -> None:
        char = self._peek()
        if not char:
            raise _UnsupportedSyntax
        self.at += 1
        if char in "pPxuU":
            widths = {"p": 1, "P": 1, "x": 2, "u": 4, "U": 8}
            if self._peek() == "{":
                close = self.pattern.find("}", self.at)
                if close < 0:
                    raise _UnsupportedSyntax
                self.at = close + 1
            else:
                self.at += widths[char]
        elif char in "bB":
            boundary = _BOUNDARY.match(self.pattern, self.at)
            if boundary:
                self.at = boundary.end()

    def _char_class(self) -> None:
        if self._peek() == "^":
            self.at += 1
        if self._peek() == "]":
            self.at += 1
        while (char := self._peek()) != "]":
            if not char:
                raise _UnsupportedSyntax
            self.at += 1
            if char == "\\":
                self._escape()
            elif char == "[":
                self._char_class()
        self.at += 1

    def _quantifiers(self) -> tuple[bool, bool]:
        optional = repeated = False
        while True:
            char = self._peek()
            if char in ("*", "?"):
                self.at += 1
                optional = repeated = True
            elif char == "+":
                self.at += 1
                repeated = True
            elif char == "{":
                count = _REPEAT.match(self.pattern, self.at)
                if count is None:
                    raise _UnsupportedSyntax
                self.at = count.end()
                repeated = True
                optional = optional or count.group(1).strip("0") == ""
            else:
                return optional, repeated
