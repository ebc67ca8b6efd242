"""Parses JSON, and dialects with comments and trailing commas, and records the position of every element.

The standard parser drops positions and comments. With this one, `jsontext` can change one member and leave every other
byte unchanged. Knows nothing of clients or files.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from sari.install.errors import Unreadable

# Deeper than any configuration, and well below Python's recursion limit.
_DEEPEST: Final = 200
_SPACE = re.compile(r"[ \t\r\n]*")
_LINE_COMMENT = re.compile(r"//[^\n]*")
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


@dataclass(frozen=True, slots=True)
class Dialect:
    """The extensions to JSON that a client's own parser accepts."""

    comments: bool = False
    trailing_commas: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """A value and its span `text[start:end]`. `members` is None for anything but an object."""

    start: int
    end: int
    plain: object
    members: tuple[Member, ...] | None = None

    def get(self, key: str) -> Member | None:
        return next((member for member in self.members or () if member.key == key), None)


@dataclass(frozen=True, slots=True)
class Member:
    """`"key": value`, from the key's first quote. `comma` is the position of the comma after it, if there is one."""

    key: str
    start: int
    value: Value
    comma: int | None


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def scan(text: str, dialect: Dialect) -> Value:
    """Parse the document. Raises Unreadable with the line if the client could not read it either."""
    reader = _Reader(text, dialect)
    start = reader.skip(0)
    value = reader.value(start, 0)
    rest = reader.skip(value.end)
    if rest < len(text):
        raise reader.wrong(rest, "there is something after the end of the document")
    return value


@dataclass(frozen=True, slots=True)
class _Reader:
    text: str
    dialect: Dialect

    def wrong(self, position: int, why: str) -> Unreadable:
        return Unreadable(line_of(self.text, position), why)

    def skip(self, position: int) -> int:
        """Skip white space and, if the dialect has them, comments."""
        while True:
            position = self._match(_SPACE, position)
            if not self.text.startswith(("//", "/*"), position):
                return position
            if not self.dialect.comments:
                raise self.wrong(position, "a comment, which this file's client does not read")
            pattern = _LINE_COMMENT if self.text[position + 1] == "/" else _BLOCK_COMMENT
            found = pattern.match(self.text, position)
            if found is None:
                raise self.wrong(position, "a comment that never ends")
            position = found.end()

    def _match(self, pattern: re.Pattern[str], position: int) -> int:
        found = pattern.match(self.text, position)
        return found.end() if found else position

    def value(self, at: int, depth: int) -> Value:
        if depth > _DEEPEST:
            raise self.wrong(at, f"nested more than {_DEEPEST} deep")
        first = self.text[at : at + 1]
        if first == "{":
            return self._object(at, depth)
        if first == "[":
            return self._array(at, depth)
        if first == '"':
            found = _STRING.match(self.text, at)
            if found is None:
                raise self.wrong(at, "a string that is not closed or holds a character it may not")
            return Value(at, found.end(), json.loads(found.group()))
        found = _SCALAR.match(self.text, at)
        if found is None:
            raise self.wrong(at, "the text ends too early" if not first else f"a value was expected, not {first!r}")
        try:
            return Value(at, found.end(), json.loads(found.group()))
        except ValueError as error:
            raise self.wrong(at, "a number that is too long") from error

    def _object(self, at: int, depth: int) -> Value:
        members: list[Member] = []
        plain: dict[str, object] = {}
        position = self.skip(at + 1)
        while self.text[position : position + 1] != "}":
            if self.text[position : position + 1] != '"':
                raise self.wrong(position, "a key in double quotes was expected")
            key = self.value(position, depth)
            name = str(key.plain)
            if name in plain:
                raise self.wrong(position, f"the key {name!r} is there twice")
            colon = self.skip(key.end)
            if self.text[colon : colon + 1] != ":":
                raise self.wrong(colon, f"a colon was expected after {name!r}")
            value = self.value(self.skip(colon + 1), depth + 1)
            comma, next_position = self._separator(value.end, "}")
            members.append(Member(name, position, value, comma))
            plain[name] = value.plain
            position = next_position
        return Value(at, position + 1, plain, tuple(members))

    def _array(self, at: int, depth: int) -> Value:
        plain: list[object] = []
        position = self.skip(at + 1)
        while self.text[position : position + 1] != "]":
            item = self.value(position, depth + 1)
            plain.append(item.plain)
            _, position = self._separator(item.end, "]")
        return Value(at, position + 1, plain)

    def _separator(self, after: int, closing: str) -> tuple[int | None, int]:
        """After a value, return the position of its comma and of the next element (or the closing bracket)."""
        position = self.skip(after)
        character = self.text[position : position + 1]
        if character == closing:
            return None, position
        if character != ",":
            raise self.wrong(position, f"a comma or {closing!r} was expected")
        following = self.skip(position + 1)
        if self.text[following : following + 1] == closing and not self.dialect.trailing_commas:
            raise self.wrong(position, "a comma after the last entry, which this file's client does not read")
        return position, following
