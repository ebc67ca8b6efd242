"""Splits a list into pages within a token budget. Pure.

A cursor identifies the last row shown by its sort key, not by its number: rows that appear or disappear in between
neither repeat nor hide others.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sari.tools.arguments import BadArguments

Key = tuple[int, str, int]
# Clients show a model the JSON rather than the text. Four bytes per token.
_BYTES_PER_TOKEN = 4
DEFAULT_TOKENS = 4000


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows in order. `cursor` is set if there are more."""

    rows: list[dict[str, object]]
    cursor: str | None


def take_page(rows: Iterable[tuple[Key, dict[str, object]]], query: str, after: Key | None, max_tokens: int) -> Page:
    """Return the rows after `after`, as many as fit the budget, but at least one."""
    budget = max_tokens * _BYTES_PER_TOKEN
    page: list[dict[str, object]] = []
    last: Key | None = None
    for key, row in rows:
        if after is not None and key <= after:
            continue
        budget -= _cost(row)
        if budget < 0 and last is not None:
            return Page(page, write_cursor(query, last))
        page.append(row)
        last = key
    return Page(page, None)


def _cost(row: Mapping[str, object]) -> int:
    return len(json.dumps(row, ensure_ascii=False)) + 1


def write_cursor(query: str, last: Key) -> str:
    """Return a cursor for the rows after this one."""
    return base64.urlsafe_b64encode(json.dumps([_digest(query), *last]).encode()).decode()


def read_cursor(cursor: str, query: str) -> Key | None:
    """Return the key that a cursor contains. Raises `BadArguments` for a cursor of another query."""
    if not cursor:
        return None
    try:
        digest, group, path, line = json.loads(base64.urlsafe_b64decode(cursor))
        after = int(group), str(path), int(line)
    except (ValueError, TypeError, RecursionError, binascii.Error) as error:
        raise BadArguments("`cursor` is not one that sari gave. Leave it out to begin at the first page.") from error
    if digest != _digest(query):
        raise BadArguments("`cursor` belongs to another query. Repeat that query's arguments, or leave `cursor` out.")
    return after


def is_cursor_of(cursor: str, query: str) -> bool:
    """Whether a cursor belongs to this query. An empty cursor belongs to every query. Raises `BadArguments` if it is
    invalid.
    """
    if not cursor:
        return True
    try:
        digest, *_ = json.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, TypeError, RecursionError, binascii.Error) as error:
        raise BadArguments("`cursor` is not one that sari gave. Leave it out to begin at the first page.") from error
    return bool(digest == _digest(query))


def _digest(query: str) -> str:
    return f"{binascii.crc32(query.encode('utf-8', 'replace')):08x}"
