"""Finds the line of a key in a TOML text, and splits a file of several templates. Pure.

`tomllib` returns values without line numbers. This module finds tables and keys by scanning lines, which is exact for usual
files; otherwise (a key inside an inline table), it returns the line of the enclosing element.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

from codehub.domain.errors import Invalid
from codehub.domain.table_reader import Mistake, Mistakes

LONGEST_SOURCE = 131_072
_HEADER = re.compile(r"\s*\[{1,2}([^\[\]]+)\]{1,2}\s*(#.*)?")
_ASSIGNED = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")


def parse_toml(source: str) -> Mapping[str, object]:
    """Parse TOML. Raises Mistakes with the line if the text is not valid TOML."""
    if len(source) > LONGEST_SOURCE:
        raise Mistakes([Mistake("", f"the text is longer than {LONGEST_SOURCE >> 10} KiB")])
    if "\0" in source:
        raise Mistakes([Mistake("", "the text holds a NUL character")])
    try:
        return tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise Mistakes([Mistake("", f"this is not TOML: {error}")]) from error
    except RecursionError as error:
        raise Mistakes([Mistake("", "tables are nested too deeply")]) from error


def line_of(source: str, mistake: Mistake) -> int | None:
    """Return the line of a mistake, from 1. None if it is about the whole text."""
    if not mistake.where:
        found = _AT_LINE.search(mistake.message)
        return int(found[1]) if found is not None else None
    wanted = tuple(_split(mistake.where))
    best: tuple[int, int] | None = None  # (number of matching parts of the path, line)
    for path, line in _keys(source):
        if wanted[: len(path)] == path and (best is None or len(path) > best[0]):
            best = (len(path), line)
    return best[1] if best is not None else None


def split_templates(source: str) -> dict[str, str]:
    """Return the text of each template in a file, by name. Comments stay with the table that follows them.

    Each part is parsed again and compared, so that no part can differ from the file.
    """
    tables = parse_toml(source).get("templates")
    assert isinstance(tables, dict), "a text that `parse_templates` accepted"
    if len(tables) == 1:
        return dict.fromkeys(tables, source)
    parts: dict[str, list[str]] = {name: [] for name in tables}
    waiting: list[str] = []
    name: str | None = None
    for line in source.splitlines():
        header = _HEADER.fullmatch(line)
        path = _split(header[1]) if header is not None else []
        if len(path) >= 2 and path[0] == "templates" and path[1] in parts:
            name = path[1]
            parts[name] += [*waiting, line]
            waiting = []
        elif name is None or not line.strip() or line.lstrip().startswith("#"):
            waiting.append(line)
        else:
            parts[name] += [*waiting, line]
            waiting = []
    found = {each: "\n".join(lines).strip("\n") + "\n" for each, lines in parts.items()}
    for each, text in found.items():
        try:
            same = tomllib.loads(text) == {"templates": {each: tables[each]}}
        except tomllib.TOMLDecodeError:
            same = False
        if not same:
            raise Invalid(
                f"templates.{each}: cannot be separated from the other templates of this text; push it alone"
            )
    return found


def _keys(source: str) -> list[tuple[tuple[str, ...], int]]:
    found: list[tuple[tuple[str, ...], int]] = []
    table: tuple[str, ...] = ()
    for number, line in enumerate(source.splitlines(), 1):
        if (header := _HEADER.fullmatch(line)) is not None:
            table = tuple(_split(header[1]))
            found.append((table, number))
        elif (assigned := _ASSIGNED.match(line)) is not None:
            found.append(((*table, *_split(assigned[1])), number))
    return found


def _split(path: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(path)]
