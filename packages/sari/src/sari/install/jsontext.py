"""Adds one entry to a JSON text and removes it again, leaving comments, order and every other byte unchanged.

Pure functions on text. `clients` decides which file and which entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from sari.install.errors import Unreadable
from sari.install.jsonscan import Dialect, Member, Value, line_of, scan

_DEFAULT_UNIT = "  "
# A comment after a member on the same line, which belongs to it: its comma goes before, the next member after.
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\n\r]*|/\*(?:[^*\n\r]|\*(?!/))*\*/)(?=[ \t]*(?:\r?\n|$))")


def read(text: str, dialect: Dialect) -> dict[str, object]:
    """Return the document as plain values. An empty text is an empty document."""
    if not text.strip():
        return {}
    document = scan(text, dialect)
    if not isinstance(document.plain, dict):
        raise Unreadable(line_of(text, document.start), "the document is not an object in braces")
    return document.plain


def put(text: str, path: tuple[str, ...], value: object, dialect: Dialect) -> str:
    """Return `text` with `value` at `path`. An object is merged into an existing object, whose other keys are kept."""
    if not text.strip():
        return render(_nested(path, value), "", _DEFAULT_UNIT, "\n") + "\n"
    if isinstance(value, Mapping) and isinstance(_at(read(text, dialect), path), dict):
        for key, part in value.items():
            text = put(text, (*path, str(key)), part, dialect)
        return text
    container, depth = _container(text, path, dialect)
    member = container.get(path[depth])
    new = _nested(path[depth + 1 :], value)
    if member is not None:
        if member.value.plain == new:
            return text
        shown = render(new, _indent_at(text, member.start), _unit(text, dialect), _newline(text))
        return text[: member.value.start] + shown + text[member.value.end :]
    return _insert(text, container, path[depth], new, dialect)


def drop(text: str, path: tuple[str, ...], dialect: Dialect) -> str:
    """Return `text` without the member at `path`, or unchanged if there is none."""
    if not text.strip():
        return text
    value = scan(text, dialect)
    for key in path[:-1]:
        member = value.get(key)
        if member is None:
            return text
        value = member.value
    members = value.members or ()
    index = next((i for i, member in enumerate(members) if member.key == path[-1]), None)
    if index is None:
        return text
    return _remove(text, members, index)


def render(value: object, indent: str, unit: str, newline: str) -> str:
    """Return JSON on several lines, for a value whose key is indented by `indent`."""
    shown = json.dumps(value, indent=unit, ensure_ascii=False)
    return shown.replace("\n", newline + indent)


def _nested(path: tuple[str, ...], value: object) -> object:
    for key in reversed(path):
        value = {key: value}
    return value


def _at(document: object, path: tuple[str, ...]) -> object:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _container(text: str, path: tuple[str, ...], dialect: Dialect) -> tuple[Value, int]:
    """Return the deepest existing object on the way to `path`, and how many keys lead to it."""
    value = scan(text, dialect)
    if value.members is None:
        raise Unreadable(line_of(text, value.start), "the document is not an object in braces")
    for depth, key in enumerate(path[:-1]):
        member = value.get(key)
        if member is None:
            return value, depth
        if member.value.members is None:
            raise Unreadable(line_of(text, member.start), f"{key!r} is there and is not an object in braces")
        value = member.value
    return value, len(path) - 1


def _insert(text: str, container: Value, key: str, value: object, dialect: Dialect) -> str:
    unit, newline = _unit(text, dialect), _newline(text)
    outer = _indent_at(text, container.start)
    members = container.members or ()
    if not members:
        inside = text[container.start + 1 : container.end - 1].rstrip(" \t\r\n")
        body = f"{newline}{outer}{unit}{_member(key, value, outer + unit, unit, newline)}{newline}{outer}"
        return text[: container.start + 1] + inside + body + text[container.end - 1 :]
    last = members[-1]
    if not _starts_line(text, last.start):
        # Everything is on one line: keep it so.
        shown = f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        return f"{text[: last.value.end]}, {shown}{text[last.value.end :]}"
    indent = _indent_at(text, last.start)
    shown = newline + indent + _member(key, value, indent, unit, newline)
    end = last.value.end if last.comma is None else last.comma + 1
    comment = _REST_OF_LINE.match(text, end)
    rest = comment.end() if comment else end
    if last.comma is None:
        return text[:end] + "," + text[end:rest] + shown + text[rest:]
    return text[:rest] + shown + "," + text[rest:]


def _member(key: str, value: object, indent: str, unit: str, newline: str) -> str:
    return f"{json.dumps(key)}: {render(value, indent, unit, newline)}"


def _remove(text: str, members: tuple[Member, ...], index: int) -> str:
    member = members[index]
    end = member.value.end if member.comma is None else member.comma + 1
    start = member.start
    line_start = len(text[:start].rstrip(" \t"))
    alone = _starts_line(text, start)
    between = text[member.value.end : end - 1] if member.comma is not None else ""
    if between.strip():
        # A comment before the comma is not ours: keep it and the line breaks around it.
        return text[:start] + between + text[end:]
    if alone and (rest := re.compile(r"[ \t]*(?=\r?\n|\}|$)").match(text, end)):
        # Remove the complete line, with the line break before it.
        start, end = len(text[:line_start].removesuffix("\n").removesuffix("\r")), rest.end()
    elif member.comma is not None:
        end = len(text) - len(text[end:].lstrip(" \t"))
    elif index > 0:
        start = line_start
    text = text[:start] + text[end:]
    before = members[index - 1] if index > 0 else None
    if member.comma is None and before is not None and before.comma is not None:
        text = text[: before.comma] + text[before.comma + 1 :]
    return text


def _starts_line(text: str, position: int) -> bool:
    return text[:position].rstrip(" \t").endswith("\n")


def _indent_at(text: str, position: int) -> str:
    """Return the white space at the start of the line that contains `position`."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str, dialect: Dialect) -> str:
    """Return the file's indentation, taken from its first member that starts a line."""
    first = next(iter(scan(text, dialect).members or ()), None)
    if first is not None and _starts_line(text, first.start):
        return _indent_at(text, first.start) or _DEFAULT_UNIT
    return _DEFAULT_UNIT


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
