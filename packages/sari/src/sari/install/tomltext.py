"""Adds one table to a TOML text and removes it again, leaving comments, order and everything else unchanged.

A new table is appended as text, which is exact; an existing table is changed with tomlkit. Every result is parsed by
the standard parser and must equal the intended document, or the change is refused.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, MutableMapping
from copy import deepcopy
from typing import cast

import tomlkit
from tomlkit.exceptions import TOMLKitError

from sari.install.errors import Unreadable

_LINE = re.compile(r"line (\d+)")


def read(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(str(error))
        line = int(found.group(1)) if found else max(1, len(text.splitlines()))
        raise Unreadable(line, re.sub(r" \(at .*\)$", "", str(error))) from error
    except (RecursionError, ValueError) as error:
        raise Unreadable(1, "it is nested too deeply, or holds a number that is too long") from error


def put(text: str, path: tuple[str, str], entry: Mapping[str, object]) -> str:
    """Return `text` with the table `path` containing `entry`. Other keys of an existing table are kept."""
    wanted = read(text)
    table, name = path
    outer = wanted.setdefault(table, {})
    if not isinstance(outer, dict):
        raise Unreadable(_line_naming(text, table), f"{table!r} is there and is not a table")
    present = outer.get(name)
    if present is not None and not isinstance(present, dict):
        raise Unreadable(_line_naming(text, name), f"{table}.{name} is there and is not a table")
    before = deepcopy(outer.get(name))
    outer[name] = _merged(present or {}, entry)
    if outer[name] == before:
        return text
    if before is None:
        appended = text + _gap(text) + show(path, entry, _newline(text))
        if _says(appended, wanted):
            return appended
    return _checked(text, wanted, lambda document: _merge_into(_table(document, table), name, entry))


def drop(text: str, path: tuple[str, ...]) -> str:
    """Return `text` without the item at `path`, or unchanged if there is none."""
    wanted = read(text)
    parent: object = wanted
    for key in path[:-1]:
        parent = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(parent, dict) or path[-1] not in parent:
        return text
    del parent[path[-1]]

    def remove(document: MutableMapping[str, object]) -> None:
        for key in path[:-1]:
            document = cast("MutableMapping[str, object]", document[key])
        del document[path[-1]]

    emptied = deepcopy(wanted)
    if len(path) > 1 and emptied.get(path[0]) == {}:
        # A table that existed only through its sub-table's header is removed with it.
        del emptied[path[0]]
    return _checked(text, wanted, remove, emptied)


def show(path: tuple[str, str], entry: Mapping[str, object], newline: str = "\n") -> str:
    """Return the table as it is appended, or as shown for adding it by hand."""
    shown = tomlkit.dumps({path[0]: {path[1]: dict(entry)}})
    # The outer table needs no header.
    shown = shown.removeprefix(f"[{path[0]}]\n").lstrip("\n")
    return shown.replace("\n", newline)


def _merged(present: Mapping[str, object], entry: Mapping[str, object]) -> dict[str, object]:
    merged = dict(present)
    for key, value in entry.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return merged


def _merge_into(table: MutableMapping[str, object], name: str, entry: Mapping[str, object]) -> None:
    present = table.get(name)
    if not isinstance(present, MutableMapping):
        fresh = tomlkit.inline_table() if type(table).__name__ == "InlineTable" else tomlkit.table()
        fresh.update(dict(entry))
        table[name] = fresh
        return
    for key, value in entry.items():
        if isinstance(value, Mapping):
            _merge_into(present, key, value)
        elif present.get(key) != value:
            present[key] = value


def _table(document: MutableMapping[str, object], name: str) -> MutableMapping[str, object]:
    if name not in document:
        document[name] = tomlkit.table(is_super_table=True)
    return cast("MutableMapping[str, object]", document[name])


def _checked(
    text: str, wanted: object, change: Callable[[MutableMapping[str, object]], None], also: object = None
) -> str:
    """Make the change with tomlkit. The result must parse as the intended document."""
    try:
        document = tomlkit.parse(text)
        change(document)
        result = tomlkit.dumps(document)
    except (TOMLKitError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(1, f"its layout cannot be changed safely ({error})") from error
    if not (_says(result, wanted) or (also is not None and _says(result, also))):
        raise Unreadable(1, "its layout cannot be changed safely")
    return result


def _says(text: str, wanted: object) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _gap(text: str) -> str:
    newline = _newline(text)
    if not text:
        return ""
    return newline if text.endswith("\n") else newline * 2


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_naming(text: str, name: str) -> int:
    for number, line in enumerate(text.splitlines(), 1):
        if name in line:
            return number
    return 1
